"""Hands the values of a batch to its tasks, in which processors read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.processing.parameters import LOCAL_PROPERTY


class ParameterDesk:
    """Knows the values of the batch in hand.

    Args:
        warn: told of each record on the topic that could not be used, once.
    """

    def __init__(self, spark: SparkSession, warn: Callable[[str], None]) -> None:
        self._context = spark.sparkContext
        self._reader: Any = new_instance(jvm_of(spark), "Parameters")
        self._warn = warn
        self._refused = 0

    def share(self) -> Mapping[str, str]:
        """For use inside `foreachBatch`, before the action: tell, and hand to tasks."""
        told = json.loads(self._reader.current())
        values: Mapping[str, str] = told.get("values", {})
        # Spark hands these properties on to the tasks of this thread.
        self._context.setLocalProperty(LOCAL_PROPERTY, json.dumps(values))
        count, last = told.get("refused", (0, ""))
        if count > self._refused:
            self._refused = count
            self._warn(f"{last}; its last good value stays ({count} refused so far)")
        return values

"""Lists the operators of a query that keep state, and what they keep, before it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import VIEW_OPTION, analysed_plan, jvm_of


@dataclass(frozen=True)
class StateOperator:
    """A part of a query that has state.

    Args:
        operator: Spark's number, under which the checkpoint has the state.
        kind: Spark's name for what it does.
        by: expressions over columns of views that rows are told apart by.
        key: the columns that these are stored in, with their types.
        computes: expressions over columns of views.
        value: the columns that what they need is stored in.
    """

    operator: int
    kind: str
    by: Sequence[str]
    key: Sequence[str]
    computes: Sequence[str]
    value: Sequence[str]

    @property
    def does(self) -> Mapping[str, Any]:
        """Everything but its number."""
        return {name: part for name, part in vars(self).items() if name != "operator"}


def read_operators(frame: DataFrame, output_mode: str) -> Sequence[StateOperator]:
    """Plan a query over stand-ins as Spark plans a batch, and list what has state, by number."""
    session: Any = frame.sparkSession
    jvm = jvm_of(session)
    lister = new_instance(jvm, "StateOperators")
    plan, spark = analysed_plan(frame), session._jsparkSession  # noqa: SLF001  no public way
    told = lister.list(spark, plan, _mode(jvm, output_mode), VIEW_OPTION)
    return [StateOperator(**each) for each in json.loads(told)]


def describe_operators(
    frame: DataFrame, output_mode: str, session: Any, location: str, settings: Mapping[str, str]
) -> None:
    """Have Spark write what it writes of each operator before the first batch of a query.

    Args:
        frame: over its streams.
        output_mode: of the query.
        session: of the JVM, with these settings.
        location: of a folder of state that has nothing of these operators.
        settings: that the checkpoint pins, the number of partitions among them.
    """
    jvm = jvm_of(frame.sparkSession)
    mode, plan = _mode(jvm, output_mode), analysed_plan(frame)
    describer = new_instance(jvm, "StateOperators")
    describer.describe(session, plan, mode, location, dict(settings))


def _mode(jvm: Any, name: str) -> Any:
    return getattr(jvm.org.apache.spark.sql.streaming.OutputMode, name.capitalize())()

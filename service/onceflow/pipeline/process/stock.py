"""The operator by what PySpark makes public: a key at a time, at some ten times the cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, Row, StructField, StructType, TimestampType

from onceflow.pipeline.process.rows import Key, in_order, plain_key
from onceflow.processing.parameters import LOCAL_PROPERTY
from onceflow.processing.runner import Handled, Runner

STATE = "s"
"""Name of the only state variable, which holds all of a key's."""


class KeyAtATime(StatefulProcessor):
    """Spark's processor that hands each key to a runner.

    Args:
        input_columns: in their order.
        order: names of those that the rows of a key are sorted by.
        output: columns of the rows that come out.
    """

    def __init__(
        self,
        runner: Runner,
        key_schema: StructType,
        input_columns: Sequence[str],
        order: Sequence[str],
        output: Sequence[str],
    ) -> None:
        self._runner = runner
        self._zoned = [isinstance(field.dataType, TimestampType) for field in key_schema]
        self._order = [input_columns.index(name) for name in order]
        self._output = Row(*output)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        # Spark keeps the schema with the state, so a reader finds whose it is.
        schema = StructType([StructField(f"__processor_{self._runner.name}", BinaryType())])
        self._state = handle.getValueState(STATE, schema)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        """Handle the new rows of a key."""
        came = [tuple(map(_in_utc, row)) for row in rows]
        columns = [pa.chunked_array([pa.array([row[at] for row in came])]) for at in self._order]
        in_turn = [came[at] for at in in_order(columns)]
        return self._handled(
            plain_key(key, self._zoned), in_turn, timerValues.getCurrentWatermarkInMs()
        )

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[Row]:
        """Handle what is due for a key."""
        plain = plain_key(key, self._zoned)
        return self._handled(plain, (), timerValues.getCurrentWatermarkInMs())

    def _handled(
        self, key: Key, rows: Sequence[tuple[Any, ...]], watermark_ms: int
    ) -> Iterator[Row]:
        found = self._state.get()
        before = bytes(found[0]) if found else None
        handled: Handled = self._runner.handle(
            key, before, rows, watermark_ms, parameters_of_batch(self._runner)
        )
        if handled.state is None and before is not None:
            self._state.clear()
        elif handled.state != before:
            self._state.update((handled.state,))
        if handled.wake_ms != handled.wake_before_ms:
            if handled.wake_before_ms is not None:
                self._handle.deleteTimer(handled.wake_before_ms)
            if handled.wake_ms is not None:
                self._handle.registerTimer(handled.wake_ms)
        return (self._output(*row) for row in handled.rows)


def parameters_of_batch(runner: Runner) -> Mapping[str, Any]:
    """Values of the batch whose task this is, by name."""
    context = TaskContext.get()
    told = context.getLocalProperty(LOCAL_PROPERTY) if context else None
    return runner.parameters.values(json.loads(told) if told else {})


def _in_utc(value: Any) -> Any:
    """PySpark gives points in time the session's zone, which is UTC by another class."""
    is_zoned = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if is_zoned else value

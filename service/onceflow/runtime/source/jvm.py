"""The source in Spark's JVM: Java fetches and decodes, and asks an object here what to read.

Spark's Py4J gateway carries the questions, as for `foreachBatch`: there is no process that plans.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import count
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.source import Position
from onceflow.protocol.ledger import canonical_json
from onceflow.runtime.source.data_source import RangeReader, SourceHandle, SourceReader, TickInput

FORMAT = "onceflow.source.KafkaProvider"
"""The class of the data source, which is on Spark's class path."""
STALL_TIMEOUT_S = 60.0
"""A range that is decided can be read at once: without progress for this long, brokers are gone."""
_NUMBERS = count(1)


class StreamPlan:
    """Plans for a stream. Implements `onceflow.source.Plan`, whose names are Java's."""

    def __init__(self, handle: SourceHandle, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock
        self._open: SourceReader | None = None

    @property
    def _reader(self) -> SourceReader:
        """Made again after an end: a frame may be started twice."""
        if self._open is None:
            self._open = SourceReader(self._handle, self._clock)
        return self._open

    def initialOffset(self) -> str:
        """As `SourceReader`, as all that follows."""
        return json.dumps(self._reader.initialOffset())

    def limit(self) -> int:
        """Records that a batch should have."""
        return self._handle.block.max_records_per_batch

    def latestOffset(self, start: str, limit: int) -> str:
        """How far the next batch reads; the limit is negative if there is none."""
        most = ReadAllAvailable() if limit < 0 else ReadMaxRows(limit)
        return json.dumps(self._reader.latestOffset(json.loads(start), most))

    def tasks(self, start: str, end: str) -> str:
        """Name the splits of each task."""
        return _tasks_text(self._reader.partitions(json.loads(start), json.loads(end)))

    def freeze(self) -> None:
        """Keep to what is there now."""
        self._reader.prepareForTriggerAvailableNow()

    def commit(self, end: str) -> None:
        """Batches up to `end` are done."""
        self._reader.commit(json.loads(end))

    def stop(self) -> None:
        """The query has ended."""
        reader, self._open = self._open, None
        if reader is not None:
            reader.stop()

    class Java:
        """Tells Py4J what this implements."""

        implements = ("onceflow.source.Plan",)


def open_stream(spark: SparkSession, handle: SourceHandle, client: Mapping[str, str]) -> DataFrame:
    """The source as a streaming frame with exactly the columns of its handle.

    Args:
        spark: on whose JVM it is read.
        handle: of the source.
        client: settings of Kafka's Java client.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  no public way
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    plans = gateway.jvm.onceflow.source.Plans
    name = f"{handle.spec.name}-{next(_NUMBERS)}"
    frames = spark.readStream.format(FORMAT).schema(from_arrow_schema(handle.columns))
    plans.put(name, StreamPlan(handle, SystemClock()))
    try:
        # The frame's table takes the plan, and keeps it.
        return frames.options(plan=name, **_reading(handle, client)).load()
    finally:
        plans.remove(name)


def open_range(
    spark: SparkSession,
    handle: SourceHandle,
    client: Mapping[str, str],
    start: Position,
    end: Position,
) -> DataFrame:
    """Read what is between two positions, with exactly the columns of the spec."""
    return open_tasks(spark, handle, client, RangeReader(handle, start, end).partitions())


def open_tasks(
    spark: SparkSession,
    handle: SourceHandle,
    client: Mapping[str, str],
    tasks: Sequence[InputPartition],
) -> DataFrame:
    """Read the splits of each task, with exactly the columns of the spec."""
    frames = spark.read.format(FORMAT).schema(from_arrow_schema(handle.spec.schema))
    return frames.options(tasks=_tasks_text(tasks), **_reading(handle, client)).load()


def _reading(handle: SourceHandle, client: Mapping[str, str]) -> Mapping[str, str]:
    """The option that says how records are read."""
    reading = {
        "client": client,
        "format": handle.spec.format,
        "format_options": canonical_json(handle.spec.format_options),
        "patience_ms": round(STALL_TIMEOUT_S * 1000),
        "secrets_digest": handle.connection.secrets_digest,
    }
    # Spark redacts options with `secret` in their name wherever it shows them.
    return {"reading_secret": canonical_json(reading)}


def _tasks_text(tasks: Sequence[InputPartition]) -> str:
    return json.dumps([_task(task) for task in tasks])


def _task(task: InputPartition) -> int | list[tuple[Any, ...]]:
    if isinstance(task, TickInput):
        return int(task.value) * 1000
    return [astuple(split) for split in task.value]

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
from onceflow.contracts.source import Split
from onceflow.protocol.ledger import canonical_json
from onceflow.runtime.source.data_source import SourceHandle, SourceReader, TickInput

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


class SplitsPlan:
    """Plans one read of splits that are known."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits

    def tasks(self, _start: str, _end: str) -> str:
        """One task."""
        return _tasks_text([InputPartition(tuple(self._splits))])

    def stop(self) -> None:
        """Nothing is open."""

    class Java:
        """Tells Py4J what this implements."""

        implements = ("onceflow.source.Plan",)


def open_stream(spark: SparkSession, handle: SourceHandle) -> DataFrame:
    """The source as a streaming frame with exactly the columns of its handle."""
    options = _options(spark, handle, StreamPlan(handle, SystemClock()))
    schema = from_arrow_schema(handle.columns)
    return spark.readStream.format(FORMAT).schema(schema).options(**options).load()


def open_splits(spark: SparkSession, handle: SourceHandle, splits: Sequence[Split]) -> DataFrame:
    """Read splits one after the other, with exactly the columns of the spec."""
    options = {**_options(spark, handle, SplitsPlan(splits)), "start": "", "end": ""}
    schema = from_arrow_schema(handle.spec.schema)
    return spark.read.format(FORMAT).schema(schema).options(**options).load()


def _options(spark: SparkSession, handle: SourceHandle, plan: object) -> Mapping[str, str]:
    """Make the options, and the plan known to Java."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  no public way
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    name = f"{handle.spec.name}-{next(_NUMBERS)}"
    gateway.jvm.onceflow.source.Plans.put(name, plan)
    reading = {
        "client": handle.block.java_client(handle.connection),
        "format": handle.spec.format,
        "format_options": canonical_json(handle.spec.format_options),
        "patience_ms": round(STALL_TIMEOUT_S * 1000),
        "secrets_digest": handle.connection.secrets_digest,
    }
    # Spark redacts options with `secret` in their name wherever it shows them.
    return {"plan": name, "reading_secret": canonical_json(reading)}


def _tasks_text(tasks: Sequence[InputPartition]) -> str:
    return json.dumps([_task(task) for task in tasks])


def _task(task: InputPartition) -> int | list[tuple[Any, ...]]:
    if isinstance(task, TickInput):
        return int(task.value) * 1000
    return [astuple(split) for split in task.value]

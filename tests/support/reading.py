"""Splits of a topic, read by Kafka's client in Spark's JVM; and by the one in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.record import Record
from onceflow.contracts.source import Reader, SourceSpec, Split
from onceflow.runtime.source import jvm
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.spark.errors import translated_errors
from onceflow.testing.sources import SourceUnderTest
from onceflow_connectors.batches import BatchBuilder, Columns
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.drivers.here import engine

_MAX_RESULT_BYTES = 2**30
_TIMEOUT_S = 60.0


def frame_of(
    spark: SparkSession,
    connection: Connection,
    splits: Sequence[Split],
    schema: pa.Schema,
    kind: str = "binary",
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The records of splits, one after the other."""
    source = KafkaSource.model_validate({"topics": sorted({split.topic for split in splits})})
    spec = SourceSpec("s", kind, schema, options or {})
    return frame_by_java(spark, SourceHandle("kafka", source, spec, connection), splits)


def frame_by_java(spark: SparkSession, handle: SourceHandle, splits: Sequence[Split]) -> DataFrame:
    """The rows of one task."""
    client = handle.block.java_client(handle.connection)
    assert client is not None
    return jvm.open_tasks(spark, handle, client, [InputPartition(tuple(splits))])


def rows_of(
    spark: SparkSession,
    connection: Connection,
    splits: Sequence[Split],
    schema: pa.Schema,
    kind: str = "binary",
    options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Their rows, with errors as the product raises them."""
    with translated_errors(_MAX_RESULT_BYTES):
        found = frame_of(spark, connection, splits, schema, kind, options).toArrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@dataclass(frozen=True)
class JavaReader:
    """Reads in Spark's JVM."""

    handle: SourceHandle
    spark: SparkSession

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        with translated_errors(_MAX_RESULT_BYTES):
            table = frame_by_java(self.spark, self.handle, splits).toArrow()
        yield from table.to_batches()


class KafkaUnderTest(SourceUnderTest):
    """A source of which Java reads what Python plans."""

    def reader(self) -> Reader:
        handle = SourceHandle("kafka", self.block, self.spec, self.connection)
        return JavaReader(handle, engine().open_session(""))


_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""

COLUMNS: Columns[Record] = {
    "_key": lambda record: record.key,
    "_topic": lambda record: record.topic,
    "_partition": lambda record: record.partition,
    "_offset": lambda record: record.offset,
    "_timestamp": lambda record: (
        record.timestamp_ms * 1000 if 0 <= record.timestamp_ms <= _LAST_MS else None
    ),
    "_value": lambda record: record.value,
    "_headers": lambda record: [{"key": name, "value": value} for name, value in record.headers],
}


def read_by_python(handle: SourceHandle, splits: Sequence[Split]) -> pa.Table:
    """The same rows, by the client and the decoders in Python."""
    until = SystemClock().within(_TIMEOUT_S)
    with closing(find_connector("kafka").broker(handle.connection)) as broker:
        records = [
            record
            for each in splits
            for record in broker.read(each.topic, {each.partition: (each.start, each.end)}, until)
        ]
    return pa.Table.from_batches([BatchBuilder(handle.spec, COLUMNS).batch(records)])

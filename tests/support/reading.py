"""Splits of a topic, read by Kafka's Java client in Spark's JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec, Split
from onceflow.runtime.source import jvm
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.spark.errors import translated_errors
from onceflow_connectors.kafka.source.source import KafkaSource

_MAX_RESULT_BYTES = 2**30


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
    handle = SourceHandle("kafka", source, spec, connection)
    client = source.java_client(connection)
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

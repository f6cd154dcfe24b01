"""Opens a source for Spark: in its JVM if the kind has a Java client, or else in Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position
from onceflow.contracts.source_block import SourceBlock
from onceflow.pipeline.file.source import Source
from onceflow.runtime.source import data_source, jvm
from onceflow.runtime.source.data_source import SourceHandle

_WITHOUT_JAVA = frozenset({"avro"})
"""Formats that Java has no decoder of."""


def open_stream(spark: SparkSession, handle: SourceHandle) -> DataFrame:
    """The source as a streaming frame with exactly the columns of its handle.

    Raises:
        ConfigError: as `SourceBlock.java_client`.
    """
    client = _client(handle.block, handle.spec.format, handle.connection)
    if client is None:
        return data_source.open_stream(spark, handle)
    return jvm.open_stream(spark, handle, client)


def open_range(
    spark: SparkSession, handle: SourceHandle, start: Position, end: Position
) -> DataFrame:
    """Read what is between two positions, with exactly the columns of the spec.

    Raises:
        ConfigError: as `SourceBlock.java_client`.
    """
    client = _client(handle.block, handle.spec.format, handle.connection)
    if client is None:
        return data_source.open_range(spark, handle, start, end)
    return jvm.open_range(spark, handle, client, start, end)


def need_workers(sources: Iterable[Source], connection: Connection) -> bool:
    """Whether Python workers read any of these; all of them are asked for their client.

    Raises:
        ConfigError: as `SourceBlock.java_client`.
    """
    return None in [_client(source.block, source.format, connection) for source in sources]


def _client(block: SourceBlock, kind: str, connection: Connection) -> Mapping[str, str] | None:
    client = block.java_client(connection)
    return None if kind in _WITHOUT_JAVA else client

"""Builds sources, result, output format and partitioner, as the pipeline file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onceflow.contracts.connector import Connection, Connector
from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, SourceSpec
from onceflow.pipeline.analysis.analysis import to_arrow
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.query.query import assemble
from onceflow.pipeline.query.references import TablePlace
from onceflow.pipeline.query.rejects import accepted, with_reason
from onceflow.pipeline.query.steps import Prepare
from onceflow.processing.parameters import carrier_of
from onceflow.runtime.batch.executed import Execution, observed, observed_step, shielded
from onceflow.runtime.checkpoint.reference_files import reference_folder
from onceflow.runtime.records.output import OutputFormat
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.source.opening import open_range, open_stream
from onceflow.runtime.source.parameters import ParameterTopic
from onceflow.runtime.source.references import FollowedReference, ReferenceSettings
from onceflow.runtime.source.ticks import TickSettings


@dataclass(frozen=True)
class Parts:
    """Makes them."""

    pipeline: Pipeline
    connector: Connector
    connection: Connection
    conf: Mapping[str, str]
    """Settings of Spark, which say how the checkpoint is reached."""

    def spec(self, name: str, schema: pa.Schema) -> SourceSpec:
        """A source that delivers these columns."""
        source = self.pipeline.sources[name]
        return SourceSpec(
            name=name,
            format=source.format,
            schema=schema,
            format_options=source.format_options(self.pipeline.folder),
            lateness_ms=source.lateness_ms,
            folder=str(self.pipeline.folder),
        )

    def reread(
        self, spark: SparkSession, name: str, columns: StructType, at: Execution
    ) -> DataFrame:
        """Read what a source read in a batch again, with everything about each record."""
        schema = to_arrow(columns)
        missing = [item for item in META_COLUMNS.items() if item[0] not in schema.names]
        for column, kind in (*missing, (REJECT_COLUMN, pa.string())):
            schema = schema.append(pa.field(column, kind))
        return open_range(spark, self._handle(name, schema), *at.positions[name])

    def _handle(
        self, name: str, schema: pa.Schema, ticks: TickSettings | None = None
    ) -> SourceHandle:
        source = self.pipeline.sources[name]
        spec = self.spec(name, schema)
        return SourceHandle(source.kind, source.block, spec, self.connection, ticks)

    def _followed(self, source: str) -> ParameterTopic | None:
        block = self.pipeline.parameters
        if block is None or source != carrier_of(self.pipeline.sources):
            return None
        return ParameterTopic(block.topic, block.declared)

    def _tables(self, source: str) -> ReferenceSettings | None:
        pipeline = self.pipeline
        if not pipeline.references or source != carrier_of(pipeline.sources):
            return None
        followed = {
            name: FollowedReference(
                block.reference,
                str((pipeline.folder / block.file).resolve()) if block.file else "",
                block.topic or "",
                block.every_ms,
            )
            for name, block in pipeline.references.items()
        }
        return ReferenceSettings(followed, pipeline.checkpoint_location, self.conf)

    def result(
        self,
        spark: SparkSession,
        columns: Mapping[str, StructType],
        tick_settings: Callable[[int | None], TickSettings | None],
        prepare: Prepare = lambda runner: runner,
    ) -> DataFrame:
        """The query's result over its streams; `tick_settings` are of an `idle_after` in ms."""

        def load(name: str, source: Source, read: StructType) -> DataFrame:
            schema = to_arrow(read)
            # Where nothing fails by them, bad payloads become rows.
            if self.pipeline.on_reject(name) != "fail":
                schema = schema.append(pa.field(REJECT_COLUMN, pa.string()))
            handle = self._handle(name, schema, tick_settings(source.idle_after_ms))
            more = replace(handle, parameters=self._followed(name), references=self._tables(name))
            stream = open_stream(spark, more)
            marked = with_reason(source, stream, F.current_timestamp())
            return accepted(observed(marked, name))

        return assemble(
            spark,
            self.pipeline,
            columns,
            load,
            watch=shielded,
            watch_step=observed_step,
            prepare=prepare,
            tables=TablePlace(reference_folder(self.pipeline.checkpoint_location)),
        )

    def output(self) -> OutputFormat:
        """How rows become records."""
        sink = self.pipeline.sink
        encode = (
            partial(self.connector.encode_avro, sink.avro.read(self.pipeline.folder))
            if sink.avro
            else None
        )
        return OutputFormat(
            sink.format,
            sink.kafka.key,
            sink.kafka.partition,
            sink.payload_columns,
            encode,
            sink.revision,
        )

    def partition_of(self, partitions: int) -> Callable[[Sequence[bytes | None]], list[int]]:
        """The partitioner of the output topic, which has so many partitions."""
        partitioner = self.pipeline.sink.kafka.partitioner
        return lambda keys: self.connector.partitions_of(partitioner, keys, partitions)

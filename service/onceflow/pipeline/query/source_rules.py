"""Rules for a source's columns, as Spark understands them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StructType, TimestampType

from onceflow.contracts.source import META_COLUMNS, TICK_COLUMN
from onceflow.errors import Fault, unknown_name
from onceflow.pipeline.allow_list.check import check_written
from onceflow.pipeline.file.formats import SINGLE_COLUMN_SCHEMAS
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.file.types import is_nested, sql_name
from onceflow.pipeline.plan.parts import parts_of_expression
from onceflow.pipeline.plan.plan import VIEW_OPTION
from onceflow.pipeline.query.query import EVENT_TIME_COLUMN, declared_columns, is_column
from onceflow.pipeline.query.spark_faults import fault_of


def stand_in(spark: SparkSession, view: str, columns: StructType) -> DataFrame:
    """A stream with these columns that is only ever analysed."""
    leaf = spark.readStream.format("rate").option(VIEW_OPTION, view).load()
    return leaf.select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in columns))


def source_faults(spark: SparkSession, file: PipelineFile) -> Iterator[Fault]:
    """Everything wrong with the columns and event times of a pipeline's sources."""
    for name, source in file.pipeline.sources.items():
        at_schema = ("sources", name, "schema")
        try:
            columns = declared_columns(source)
        except PySparkException as error:
            yield file.fault_at(Rule.SOURCE_COLUMNS, fault_of(error, {}), at_schema)
            continue
        of_schema = chain(
            _name_faults(columns),
            _type_faults(columns),
            _meta_faults(columns),
            _format_faults(source, columns, file),
        )
        of_required = (
            unknown_name("the schema has no column", column, columns.names)
            for column in source.required
            if column not in columns.names
        )
        of_key, of_time = _key_faults(source, columns), _event_time_faults(spark, source, columns)
        for rule, faults, path in (
            (Rule.SOURCE_COLUMNS, of_schema, ("schema",)),
            (Rule.SOURCE_COLUMNS, of_required, ("required",)),
            (Rule.SOURCE_COLUMNS, of_key, ("deduplicate", "key")),
            (Rule.EVENT_TIME, of_time, ("event_time",)),
        ):
            yield from file.faults_at(rule, faults, ("sources", name, *path))


def _key_faults(source: Source, columns: StructType) -> Iterator[Fault]:
    """Faults of the columns that tell duplicates."""
    for name in source.deduplicate.key if source.deduplicate else ():
        if name not in columns.names:
            yield unknown_name("the schema has no column", name, columns.names)
        elif is_nested(columns[name].dataType):
            yield Fault(
                f"the column `{name}` is {sql_name(columns[name].dataType)}",
                expected="a key that is one value",
                suggestion="Name the columns that duplicates have in common, each by itself.",
            )


def payload_names(columns: StructType) -> list[str]:
    """The columns that come from the payload, and not from the record itself."""
    return [name for name in columns.names if name not in META_COLUMNS]


def _name_faults(columns: StructType) -> Iterator[Fault]:
    seen: set[str] = set()
    for field in columns:
        if field.name.casefold() in seen:
            yield Fault(f"the column `{field.name}` is declared twice")
        seen.add(field.name.casefold())
        if field.name == EVENT_TIME_COLUMN:
            yield Fault(f"the name `{field.name}` is kept for event_time expressions")
        if field.name.casefold() == TICK_COLUMN:
            yield Fault(f"the name `{field.name}` is kept for sources with `idle_after`")
        if not field.nullable:
            yield Fault(
                f"the column `{field.name}` is NOT NULL",
                suggestion="Remove NOT NULL: what a payload lacks is null.",
            )


def _type_faults(columns: StructType) -> Iterator[Fault]:
    for field in columns:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except PySparkException:
            yield Fault(
                f"the column `{field.name}` is {sql_name(field.dataType)}",
                expected="a type that payloads can be decoded to",
            )


def _meta_faults(columns: StructType) -> Iterator[Fault]:
    for field in columns:
        if field.name in META_COLUMNS:
            expected = from_arrow_type(META_COLUMNS[field.name])
            if field.dataType != expected:
                yield Fault(
                    f"`{field.name}` is declared as {sql_name(field.dataType)}",
                    expected=sql_name(expected),
                )


def _format_faults(source: Source, columns: StructType, file: PipelineFile) -> Iterator[Fault]:
    payload = payload_names(columns)
    if source.format in SINGLE_COLUMN_SCHEMAS:
        expected = SINGLE_COLUMN_SCHEMAS[source.format].partition(" ")[2]
        types = [sql_name(columns[name].dataType) for name in payload]
        if types != [expected]:
            yield Fault(
                f"format {source.format} with payload columns of type {', '.join(types) or 'none'}",
                expected=f"exactly one column of type {expected}",
            )
    if source.format == "csv":
        for name in payload:
            if is_nested(columns[name].dataType):
                yield Fault(f"CSV has no nested columns, and `{name}` is one")
    if not payload:
        yield Fault("no column comes from the payload", expected="at least one")
    if source.avro is not None:
        fields = avro_fields(source.avro.read(file.pipeline.folder))
        for name in payload:
            if name not in fields:
                yield unknown_field(name, fields)


def avro_fields(schema: str) -> Mapping[str, Mapping[str, Any]]:
    """Fields of an Avro record schema, by name."""
    return {field["name"]: field for field in json.loads(schema)["fields"]}


def unknown_field(name: str, fields: Mapping[str, object]) -> Fault:
    """A column that the Avro schema does not have."""
    return unknown_name("the Avro schema has no field", name, [*fields])


def _event_time_faults(spark: SparkSession, source: Source, columns: StructType) -> Iterator[Fault]:
    if source.event_time is None:
        return
    try:
        if refused := check_written(parts_of_expression(spark, source.event_time), ()):
            yield from refused
            return
        found = stand_in(spark, "", columns).select(F.expr(source.event_time)).schema[0].dataType
    except PySparkException as error:
        fault = fault_of(error, {"": columns.names})
        if source.event_time in META_COLUMNS:
            fault = Fault(fault.what, suggestion=f"Declare `{source.event_time}` in the schema.")
        yield fault
        return
    if not isinstance(found, TimestampType):
        cure = "Write e.g. `timestamp_millis(at)` for milliseconds, `to_timestamp(at)` for text."
        kind = "column" if is_column(source, columns) else "expression"
        yield Fault(f"the {kind} is {sql_name(found)}", expected="TIMESTAMP", suggestion=cure)

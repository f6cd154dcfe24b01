"""Rules for the result's columns, so that each row becomes a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.sql.types import StructType

from onceflow.errors import Fault, unknown_name
from onceflow.pipeline.file.formats import SINGLE_COLUMN_SCHEMAS
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.file.types import is_nested, sql_name
from onceflow.pipeline.query.source_rules import avro_fields, unknown_field

_PARTITION_TYPES = ("tinyint", "smallint", "int", "bigint")


def output_faults(file: PipelineFile, output: StructType) -> Iterator[Fault]:
    """Everything wrong between the columns of the result and the sink."""
    rule = Rule.RESULT_COLUMNS
    yield from file.faults_at(rule, _name_faults(output), file.transformation)
    yield from file.faults_at(rule, _revision_faults(file, output), file.transformation)
    for option in ("key", "partition"):
        at = ("sink", "kafka", option)
        yield from file.faults_at(rule, _routing_faults(file, output, option), at)
    yield from file.faults_at(rule, _payload_faults(file, output), ("sink", "format"))


def _name_faults(output: StructType) -> Iterator[Fault]:
    for name, count in Counter(map(str.casefold, output.names)).items():
        if count > 1:
            yield Fault(
                f"{count} columns of the result are named `{name}`",
                suggestion="Give each a name of its own with AS.",
            )
    for name in output.names:
        if "." in name or "`" in name:
            yield Fault(f"the result's column `{name}` has a dot or a backquote in its name")


def _revision_faults(file: PipelineFile, output: StructType) -> Iterator[Fault]:
    name = file.pipeline.sink.revision
    if name is not None and name.casefold() in map(str.casefold, output.names):
        yield Fault(
            f"the result has a column `{name}`, which is that of revisions",
            suggestion="Give one of them another name.",
        )


def _routing_faults(file: PipelineFile, output: StructType, option: str) -> Iterator[Fault]:
    name = getattr(file.pipeline.sink.kafka, option)
    if name is None:
        return
    if name not in output.names:
        yield unknown_name("the result has no column", name, output.names)
        return
    found = output[name].dataType
    if option == "partition" and found.simpleString() not in _PARTITION_TYPES:
        yield Fault(f"the partition column is {sql_name(found)}", expected="an integer")
    if option == "key" and is_nested(found):
        yield Fault(
            f"the key column is {sql_name(found)}",
            expected="a column of text, numbers, time or BINARY",
        )


def _payload_faults(file: PipelineFile, output: StructType) -> Iterator[Fault]:
    sink = file.pipeline.sink
    names = sink.payload_columns(output.names)
    if sink.format in SINGLE_COLUMN_SCHEMAS:
        expected = SINGLE_COLUMN_SCHEMAS[sink.format].partition(" ")[2]
        types = [sql_name(output[name].dataType) for name in names]
        if types != [expected]:
            found = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
            yield Fault(
                f"format {sink.format} with the columns {found}",
                expected=f"exactly one column of type {expected} besides key and partition",
            )
    if sink.format == "csv":
        for name in names:
            if is_nested(output[name].dataType):
                yield Fault(f"CSV cannot hold `{name}`, which is {sql_name(output[name].dataType)}")
    if sink.avro is not None:
        fields = avro_fields(sink.avro.read(file.pipeline.folder))
        names = [*names, *([sink.revision] if sink.revision else [])]
        yield from (unknown_field(name, fields) for name in names if name not in fields)
        for name, field in fields.items():
            if name not in names and "default" not in field:
                yield Fault(f"the result lacks `{name}`, which the Avro schema requires")

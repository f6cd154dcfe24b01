"""Spark's types as rules and messages need them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from onceflow.columns import Columns, Type, parse_columns

DELAY = "spark.watermarkDelayMs"
"""In the metadata of a column: it has the event time (`EventTimeWatermark.delayKey`)."""


def is_nested(data_type: DataType) -> bool:
    """Whether a value holds several values."""
    return isinstance(data_type, ArrayType | MapType | StructType | VariantType)


def sql_name(data_type: DataType) -> str:
    """The type as SQL writes it."""
    return data_type.simpleString().upper()


def quoted(name: str) -> str:
    """The name of a column as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """The column of exactly this name, whatever is in it."""
    return F.col(quoted(name))


def column_at(path: str) -> Column:
    """A column, or a `column.field` of a struct; no name of them has a dot in it."""
    name, _, field = path.partition(".")
    return column(name)[field] if field else column(name)


def type_at(columns: StructType, path: str) -> DataType | None:
    """The type of `column_at` that path; None if there is no such column."""
    name, _, field = path.partition(".")
    found = columns[name].dataType if name in columns.names else None
    if not field or found is None:
        return found
    if not isinstance(found, StructType) or field not in found.names:
        return None
    return found[field].dataType


def columns_of(schema: StructType) -> Columns:
    """The columns as processors and aggregates know types.

    Raises:
        ConfigError: a type is not known there.
    """
    return parse_columns(
        ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema)
    )


def spark_schema(columns: Columns) -> StructType:
    """The columns as Spark knows them. Needs a running session."""
    found: Any = StructType.fromDDL(columns.columns_ddl)
    schema: StructType = found
    return schema


def spark_type(kind: Type) -> DataType:
    """The type as Spark knows it. Needs a running session."""
    return spark_schema(Columns(("value",), (kind,)))["value"].dataType

"""Spark's types as rules and messages need them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType


def is_nested(data_type: DataType) -> bool:
    """Whether a value holds several values."""
    return isinstance(data_type, ArrayType | MapType | StructType | VariantType)


def sql_name(data_type: DataType) -> str:
    """The type as SQL writes it."""
    return data_type.simpleString().upper()


def column(name: str) -> Column:
    """The column of exactly this name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")

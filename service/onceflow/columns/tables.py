"""Rows as columns of Arrow. Values with parts (arrays, structs, maps) are JSON text in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from onceflow.columns.types import Columns, Scalar, Type


def table_schema(columns: Columns) -> pa.Schema:
    """The columns as a table of rows has them. All may be null."""
    return pa.schema([(name, _arrow_type(kind)) for name, kind in columns.by_name.items()])


def table_of(columns: Columns, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """A table of rows, whose values are in the order of the columns."""
    schema = table_schema(columns)
    if not rows:
        return schema.empty_table()
    values = zip(*rows, strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _arrow_type(kind: Type) -> pa.DataType:
    return kind.to_arrow() if isinstance(kind, Scalar) else pa.string()

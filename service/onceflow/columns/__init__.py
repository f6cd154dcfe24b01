"""Columns and types as Spark SQL declares them, for plain Python values: no Spark is needed.

Values are those that PySpark and pyarrow give: `int`, `float`, `Decimal`, `str`, `bytes`, `bool`,
`date`, `datetime` (with a zone for TIMESTAMP, without one for TIMESTAMP_NTZ). Structs are named
tuples in the order of their fields, arrays are lists, maps are dicts in the order of their keys.
"""

from onceflow.columns.json_values import parts_reader, scalar_reader, text_reader, value_reader
from onceflow.columns.parse import parse_columns, parse_type
from onceflow.columns.types import NO_COLUMNS, Array, Columns, MapOf, Scalar, Type

__all__ = [
    "NO_COLUMNS",
    "Array",
    "Columns",
    "MapOf",
    "Scalar",
    "Type",
    "parse_columns",
    "parse_type",
    "parts_reader",
    "scalar_reader",
    "text_reader",
    "value_reader",
]

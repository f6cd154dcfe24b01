"""Avro's plain datums, as strict as the other formats. fastavro alone rounds decimals and crashes.

Import it where it is used: it loads fastavro.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, cast

import fastavro
from fastavro import _read_py as slow
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

READ_ERRORS: Final = (
    *(ValueError, TypeError, ArithmeticError, KeyError, EOFError, IndexError, MemoryError),
    *(struct.error, RecursionError),
)
"""Raised by fastavro for bytes that do not fit the schema, depending on the bytes."""


def _decimal(data: bytes, written_as: Mapping[str, Any] | None, _reader: object) -> Decimal:
    """A decimal as it is; fastavro's own reader would round one with too many digits."""
    written_as = written_as or {}
    unscaled = int.from_bytes(data, signed=True)
    digits = str(abs(unscaled))
    if len(digits) > written_as["precision"]:
        raise ValueError("more digits than the schema has")
    return Decimal((int(unscaled < 0), tuple(map(int, digits)), -written_as.get("scale", 0)))


LOGICAL_READERS["bytes-decimal"] = LOGICAL_READERS["fixed-decimal"] = _decimal


def parse_avro(text: str) -> Any:
    """Parse a schema, as fastavro wants it.

    Raises:
        ValueError: it is none, and why.
    """
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        raise ValueError(str(error)) from error


def avro_reader(parsed: Any) -> Callable[[bytes], tuple[Any, int]]:
    """Make what reads a datum of a parsed schema: its value, and how many bytes follow it.

    It raises one of `READ_ERRORS` if the bytes do not fit. Where a type holds itself, fastavro's
    slow reader counts the depth: the quick one would end the process with a full stack.
    """
    read = slow.schemaless_reader if _holds_itself(parsed, ()) else fastavro.schemaless_reader

    def datum(payload: bytes) -> tuple[Any, int]:
        stream = io.BytesIO(payload)
        return read(stream, parsed, None), len(payload) - stream.tell()

    return datum


def _holds_itself(schema: Any, around: tuple[str, ...]) -> bool:
    """Whether a type stands within the type of that name, of which it has the names."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_holds_itself(each, around) for each in schema)
    if not isinstance(schema, dict):
        return False
    parts = [schema.get("type"), schema.get("items"), schema.get("values")]
    parts += [field["type"] for field in schema.get("fields", ())]
    inside = (*around, cast("str", schema["name"])) if "name" in schema else around
    return any(_holds_itself(each, inside) for each in parts)

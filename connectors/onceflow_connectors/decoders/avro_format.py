"""Avro payloads: one plain datum in each record, without container and registry prefix.

`schema` of the format options is the schema that the data was written with. Columns are matched by
name and must have the types that Avro's logical types stand for; unknown fields are ignored,
missing ones are null.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from onceflow.errors import ConfigError
from onceflow_connectors.decoders.values import CONVERSION_ERRORS, PayloadError, column

_READ_ERRORS = (*CONVERSION_ERRORS, EOFError, IndexError, struct.error, MemoryError)
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


class AvroDecoder:
    """Decodes datum by datum; Arrow has no Avro parser.

    Args:
        schema: the payload columns.
        options: `schema`, Avro's schema as JSON text.
    """

    def __init__(self, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._schema = schema
        self._written_as = _parsed(options)

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        """A record without a payload is a bad one."""
        datums = [self._datum(payload) for payload in payloads]
        try:
            return [column([d.get(f.name) for d in datums], f.type) for f in self._schema]
        except CONVERSION_ERRORS as error:
            raise PayloadError(str(error)) from error

    def _datum(self, payload: bytes | None) -> Mapping[str, Any]:
        if payload is None:
            raise PayloadError("the record has no payload")
        stream = io.BytesIO(payload)
        try:
            datum: Any = fastavro.schemaless_reader(stream, self._written_as, None)
        except _READ_ERRORS as error:
            raise PayloadError(f"not a datum of the schema: {type(error).__name__}") from error
        if left := len(payload) - stream.tell():
            raise PayloadError(f"{left} bytes after the datum")
        return cast("Mapping[str, Any]", datum)  # what a record schema describes


def _parsed(options: Mapping[str, Any]) -> Any:
    try:
        parsed = fastavro.parse_schema(json.loads(options["schema"]))
    except (KeyError, ValueError, TypeError, SchemaParseException, UnknownType) as error:
        raise ConfigError(
            "unreadable Avro schema", expected="JSON text of a record schema", found=str(error)
        ) from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("the Avro schema is not that of a record")
    return parsed

"""Avro payloads: one plain datum in each record, without container and registry prefix.

`schema` of the format options is the schema that the data was written with. Columns are matched by
name and must have the types that Avro's logical types stand for; unknown fields are ignored,
missing ones are null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from onceflow.columns.avro import READ_ERRORS, avro_reader, parse_avro
from onceflow.errors import ConfigError
from onceflow_connectors.decoders.values import CONVERSION_ERRORS, PayloadError, column


class AvroDecoder:
    """Decodes datum by datum; Arrow has no Avro parser.

    Args:
        schema: the payload columns.
        options: `schema`, Avro's schema as JSON text.
    """

    def __init__(self, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._schema = schema
        self._read = avro_reader(_parsed(options))

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
        try:
            datum, left = self._read(payload)
        except READ_ERRORS as error:
            raise PayloadError(f"not a datum of the schema: {type(error).__name__}") from error
        if left:
            raise PayloadError(f"{left} bytes after the datum")
        return cast("Mapping[str, Any]", datum)  # what a record schema describes


def _parsed(options: Mapping[str, Any]) -> Any:
    try:
        parsed = parse_avro(options["schema"])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            "unreadable Avro schema", expected="JSON text of a record schema", found=str(error)
        ) from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("the Avro schema is not that of a record")
    return parsed

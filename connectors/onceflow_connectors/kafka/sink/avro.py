"""Encodes rows as plain Avro datums: no container, no registry prefix."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from onceflow.errors import ConfigError, RecordError

MAX_SCHEMAS = 16
"""Parsed schemas that are kept: one per pipeline of a process, with room."""
MAX_ROW_SHOWN = 200
"""Characters of a row in a message: enough to find it."""

# What fastavro raises for a value that does not fit; it has no class of its own for that.
_MISFITS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


def encode_avro(schema: str, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Encode rows, each on its own, by an Avro schema in JSON.

    A field with a default may be missing; none may be left over.

    Raises:
        ConfigError: the schema cannot be read.
        RecordError: a row does not fit the schema.
    """
    parsed = _parse(schema)
    encoded = []
    for row in rows:
        buffer = io.BytesIO()
        try:
            fastavro.schemaless_writer(buffer, parsed, row, strict_allow_default=True)
        except _MISFITS as error:
            raise RecordError(
                "a row does not fit the Avro schema of the output",
                subject=str(dict(row))[:MAX_ROW_SHOWN],
                found=str(error),
                then="stopping; nothing of this batch was written",
            ) from error
        encoded.append(buffer.getvalue())
    return encoded


@lru_cache(maxsize=MAX_SCHEMAS)
def _parse(schema: str) -> Any:
    try:
        return fastavro.parse_schema(json.loads(schema))
    except (SchemaParseException, *_MISFITS) as error:
        raise ConfigError(
            "unreadable Avro schema", found=f"{type(error).__name__}: {error}"
        ) from error

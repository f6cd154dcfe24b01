"""State of one key as bytes, which outlive changes of the class that wrote them.

As in Avro's single-object encoding: a mark, the fingerprint of the schema, and the value. The
fingerprint is not Avro's, which leaves out logical types, and with them the scale of decimals. A
state is always read under the schema that wrote it; the declarations of the class that runs take
from it what they know by name.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import fastavro

from onceflow.columns import Columns
from onceflow.errors import CorruptionError
from onceflow.processing.state import TIME, State

_MARK = b"\xc3\x01"
HEADER_BYTES = len(_MARK) + 8
WAKES = "wakes"
"""In a schema: false if what is written under it never has a timer of Spark."""


class Codec:
    """Writes state under one schema, and reads what it and earlier ones have written.

    Args:
        schema: of Avro, as JSON.
        earlier: schemas that states may have been written under before.
    """

    def __init__(self, schema: Any, earlier: tuple[Any, ...] = ()) -> None:
        self.schema = schema
        self.earlier = earlier

    @cached_property
    def header(self) -> bytes:
        """First bytes of each state."""
        return _MARK + fingerprint(self.schema)

    @cached_property
    def _by_header(self) -> Mapping[bytes, Any]:
        schemas = (*self.earlier, self.schema)
        return {_MARK + fingerprint(each): fastavro.parse_schema(each) for each in schemas}

    def check(self) -> None:
        """Look at the schemas.

        Raises:
            ValueError: one of them is none.
        """
        try:
            _ = self._by_header
        except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError) as error:
            raise ValueError(str(error)) from error

    def encode(self, state: Mapping[str, Any]) -> bytes:
        """State as bytes; equal states are equal bytes."""
        out = io.BytesIO()
        out.write(self.header)
        fastavro.schemaless_writer(out, self._by_header[self.header], state)
        return out.getvalue()

    def decode(self, content: bytes) -> Mapping[str, Any]:
        """State from bytes, with the fields that it was written with.

        Raises:
            CorruptionError: it was written under a schema that is not known, or is damaged.
        """
        header = content[:HEADER_BYTES]
        if header not in self._by_header:
            raise CorruptionError(
                "the state was written under another schema",
                expected=f"one of {', '.join(each.hex() for each in self._by_header)}",
                found=header.hex(),
                then="nothing of this batch was written; is this the checkpoint of this processor?",
            )
        try:
            body = io.BytesIO(memoryview(content)[HEADER_BYTES:])
            state: Any = fastavro.schemaless_reader(body, self._by_header[header], None)
        except (EOFError, ValueError, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise CorruptionError(
                "the state of a key is damaged",
                found=str(error),
                then="nothing of this batch was written",
            ) from error
        found: Mapping[str, Any] = state
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return Codec, (self.schema, self.earlier)


def state_schema(
    declared: Mapping[str, State[Any]], waiting: Columns | None, *, wakes: bool
) -> dict[str, Any]:
    """Avro's schema of a key's state: a field for each declared one, and our own.

    Args:
        declared: by name, in order.
        waiting: columns of records that wait for the event watermark; None if none do.
        wakes: whether a key may have a timer.
    """
    fields: list[dict[str, Any]] = [
        {"name": name, "type": each.avro(name)} for name, each in declared.items()
    ]
    timer = [{"name": "at", "type": TIME}, {"name": "name", "type": "string"}]
    timers = {"type": "record", "name": "timer", "fields": timer}
    fields.append({"name": "_timers", "type": {"type": "array", "items": timers}})
    if waiting is not None:
        items = {"type": "array", "items": waiting.avro("waiting")}
        fields.append({"name": "_waiting", "type": items})
    fields.append({"name": "_wake_ms", "type": ["null", "long"]})
    schema = {"type": "record", "name": "state", "fields": fields}
    return schema if wakes else {**schema, WAKES: False}


def fingerprint(schema: Any) -> bytes:
    """Eight bytes that stand for a schema."""
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:8]

"""State of processors as data: what the bytes of a key mean, by the forms in the checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from onceflow.columns import Array, Columns, MapOf, Type, parse_type
from onceflow.errors import CorruptionError
from onceflow.processing.codec import HEADER_BYTES, Codec
from onceflow.texts import text_of

_WAITING = "_waiting"


class Form:
    """How a processor's state was written: its declarations, and their Avro schema.

    Args:
        recorded: as the checkpoint names it: `declared`, and `schema`.
    """

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        declared = recorded["declared"]
        self._declared = {name: each for name, each in declared.items() if name != _WAITING}
        self._is_waiting = _WAITING in declared
        self._codec = Codec(recorded["schema"])

    @property
    def header(self) -> bytes:
        """First bytes of each state of this form."""
        return self._codec.header

    def columns(self) -> Mapping[str, str]:
        """Names that `decode` gives, with their types in the words of Spark SQL."""
        own = {"_timers": "array<struct<at:timestamp,name:string>>"}
        if self._is_waiting:
            own[_WAITING] = "bigint"
        return {name: _type_text(each) for name, each in self._declared.items()} | own

    def decode(self, content: bytes) -> Mapping[str, Any]:
        """State by name, as JSON has it; what has a time to live, with its end.

        Raises:
            CorruptionError: it is damaged.
        """
        state = self._codec.decode(content)
        found = {name: _decoded(each, state[name]) for name, each in self._declared.items()}
        found["_timers"] = plain(state["_timers"])
        if self._is_waiting:
            found[_WAITING] = len(state[_WAITING])
        return found


class Forms:
    """The forms that the state of one processor has had.

    Args:
        step: its name.
        read: gives what the checkpoint names, oldest first.
    """

    def __init__(self, step: str, read: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._step = step
        self._read = read
        self._forms: Mapping[bytes, Form] = {}

    def columns(self) -> Mapping[str, str]:
        """Names and types of the newest form."""
        self._refresh()
        return [*self._forms.values()][-1].columns()

    def decode(self, content: bytes) -> Mapping[str, Any]:
        """State by name.

        Raises:
            CorruptionError: it is damaged, or of a form that the checkpoint does not name.
        """
        header = content[:HEADER_BYTES]
        if header not in self._forms:
            self._refresh()
        if header not in self._forms:
            raise self._unknown(header.hex())
        return self._forms[header].decode(content)

    def _refresh(self) -> None:
        """A pipeline that runs may have begun to write another form meanwhile."""
        self._forms = {form.header: form for form in map(Form, self._read())}
        if not self._forms:
            raise self._unknown("none")

    def _unknown(self, found: str) -> CorruptionError:
        return CorruptionError(
            "the checkpoint does not name the form of this state",
            subject=f"processors/{self._step}.json",
            expected=", ".join(header.hex() for header in self._forms) or "one form or more",
            found=found,
            then="was the file lost when the checkpoint was copied?",
        )


def plain(value: object) -> Any:
    """A value of Arrow as JSON has it: times in ISO 8601, decimals and bytes as text."""
    match value:
        case dict():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case bytes():
            return text_of(value)
        case datetime() | date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _type_text(declared: Mapping[str, str]) -> str:
    match declared["kind"]:
        case "list":
            return f"array<{declared['type']}>"
        case "map":
            return f"map<{declared['key']},{declared['type']}>"
    return declared["type"]


@lru_cache(maxsize=1_000)
def _type(ddl: str) -> Type:
    return parse_type(ddl)


def _decoded(declared: Mapping[str, str], stored: Any) -> Any:
    kind = _type(declared["type"])
    has_end = "ttl_ms" in declared

    def value(item: Any) -> Any:
        if not has_end:
            return _named(kind, kind.from_avro(item))
        named = _named(kind, kind.from_avro(item["value"]))
        return {"value": named, "expires": plain(item["expires"])}

    match declared["kind"]:
        case "list":
            return [value(item) for item in stored]
        case "map":
            key = _type(declared["key"])
            return {
                _text(_named(key, key.from_avro(entry["key"]))): value(
                    entry if has_end else entry["value"]
                )
                for entry in stored
            }
    # A value, or the accumulator of an aggregate.
    return None if stored is None else value(stored)


def _named(kind: Type, value: Any) -> Any:
    """A value as JSON has it, with the names of fields."""
    match kind:
        case _ if value is None:
            return None
        case Columns():
            fields = zip(kind.names, kind.types, value, strict=True)
            return {name: _named(each, part) for name, each, part in fields}
        case Array():
            return [_named(kind.item, item) for item in value]
        case MapOf():
            return {_text(plain(key)): _named(kind.value, each) for key, each in value.items()}
    return plain(value)


def _text(key: Any) -> str:
    """The key of an entry, for which JSON has only text."""
    return key if isinstance(key, str) else json.dumps(key)

"""State of processors as data: what the bytes of a key mean, by the forms in the checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from onceflow.columns import Array, Columns, MapOf, Type, parse_columns, parse_type
from onceflow.errors import CorruptionError
from onceflow.processing.codec import HEADER_BYTES, WAKES, Codec
from onceflow.processing.runner import Runner
from onceflow.texts import text_of

_WAITING = "_waiting"
_TIMER = parse_columns("at timestamp not null, name string not null")
_TIME = parse_type("timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Form:
    """How a processor's state was written: its declarations, and their Avro schema.

    Args:
        recorded: as the checkpoint names it: `declared`, and `schema`.
    """

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        declared = recorded["declared"]
        self._declared = {name: each for name, each in declared.items() if name != _WAITING}
        self._is_waiting = _WAITING in declared
        self._waiting = parse_columns(declared[_WAITING]["type"]) if self._is_waiting else _TIMER
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
        found = {name: _decoded(each, state[name], _JSON) for name, each in self._declared.items()}
        found["_timers"] = plain(state["_timers"])
        if self._is_waiting:
            found[_WAITING] = len(state[_WAITING])
        return found

    def values(self, content: bytes) -> dict[str, Any]:
        """State by name as Python has it, which `encode` takes; what may end, with its end.

        Raises:
            CorruptionError: it is damaged.
        """
        state = self._codec.decode(content)
        found = {n: _decoded(each, state[n], _PYTHON) for n, each in self._declared.items()}
        found["_timers"] = state["_timers"]
        if self._is_waiting:
            found[_WAITING] = [self._waiting.from_avro(each) for each in state[_WAITING]]
        return found

    def wake_ms(self, content: bytes) -> int | None:
        """When the key has something to do, in Unix milliseconds of event time.

        Raises:
            CorruptionError: it is damaged.
        """
        found: int | None = self._codec.decode(content)["_wake_ms"]
        return found

    def encode(self, values: Mapping[str, Any], time: str) -> tuple[bytes, int | None] | None:
        """State as bytes, and when the key has something to do; None if there is nothing to keep.

        Args:
            values: by name; a state without one begins empty.
            time: column of a record that waits which has its event time.

        Raises:
            ValueError: a name or a value does not fit the declarations.
        """
        own = ["_timers", *([_WAITING] if self._is_waiting else [])]
        if unknown := values.keys() - {*self._declared, *own}:
            expected = ", ".join([*self._declared, *own])
            raise ValueError(f"no state {', '.join(sorted(unknown))}; expected {expected}")
        ends: list[datetime] = []
        state = {n: _stored(n, each, values.get(n), ends) for n, each in self._declared.items()}
        timers = [_TIMER.check(each) for each in values.get("_timers", ())]
        if timers and not self._codec.schema.get(WAKES, True):
            raise ValueError("a timer cannot be kept; expected a class with `on_timer`")
        state["_timers"] = [_TIMER.to_avro(each) for each in sorted(timers)]
        ends += [each.at for each in timers]
        if self._is_waiting:
            waiting = [self._waiting.check(each) for each in values.get(_WAITING, ())]
            state[_WAITING] = [self._waiting.to_avro(each) for each in waiting]
            at = self._waiting.names.index(time)
            ends += [each[at] for each in waiting]
        if all(each is None or each == [] for each in state.values()):
            return None
        wake_ms = -((_EPOCH - min(ends)) // _MS) if ends else None
        return self._codec.encode({**state, "_wake_ms": wake_ms}), wake_ms


def form_written_by(runner: Runner) -> Mapping[str, Any]:
    """The form in which a processor writes its state, as the checkpoint names it."""
    return {"declared": runner.declared, "schema": runner.codec.schema}


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
        """State by name, as JSON has it.

        Raises:
            CorruptionError: it is damaged, or of a form that the checkpoint does not name.
        """
        return self.form_of(content).decode(content)

    def form_of(self, content: bytes) -> Form:
        """The form that a state was written in.

        Raises:
            CorruptionError: the checkpoint does not name it.
        """
        header = content[:HEADER_BYTES]
        if header not in self._forms:
            self._refresh()
        if header not in self._forms:
            raise self._unknown(header.hex())
        return self._forms[header]

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


def _decoded(declared: Mapping[str, str], stored: Any, words: _Words) -> Any:
    kind = _type(declared["type"])
    has_end = "ttl_ms" in declared

    def value(item: Any) -> Any:
        if not has_end:
            return words.of(kind, kind.from_avro(item))
        named = words.of(kind, kind.from_avro(item["value"]))
        return {"value": named, "expires": words.scalar(item["expires"])}

    match declared["kind"]:
        case "list":
            return [value(item) for item in stored]
        case "map":
            key = _type(declared["key"])
            return {
                words.key(key, key.from_avro(entry["key"])): value(
                    entry if has_end else entry["value"]
                )
                for entry in stored
            }
    # A value, or the accumulator of an aggregate.
    return None if stored is None else value(stored)


def _stored(name: str, declared: Mapping[str, str], given: Any, ends: list[datetime]) -> Any:
    """The inverse of `_decoded`. Adds to `ends` when values end."""
    kind = _type(declared["type"])
    entry = Columns(("value", "expires"), (kind, _TIME), frozenset({"expires"}))

    def value(item: Any) -> Any:
        if "ttl_ms" not in declared:
            return {"value": kind.to_avro(kind.check(item))}
        checked = entry.check(item)
        ends.append(checked.expires)
        return entry.to_avro(checked)

    def key(item: Any) -> Any:
        of_key = _type(declared["key"])
        checked = of_key.check(item)
        if checked is None:
            raise ValueError("the key of an entry is null")
        return of_key.to_avro(checked)

    try:
        match declared["kind"]:
            case "list":
                items = [value(item) for item in given or ()]
                return items if "ttl_ms" in declared else [item["value"] for item in items]
            case "map":
                entries = dict(given or {}).items()
                return [{"key": key(k), **value(item)} for k, item in sorted(entries)]
        if given is None:
            return None
        return value(given) if "ttl_ms" in declared else value(given)["value"]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


class _Words:
    """Values as Python has them."""

    def scalar(self, value: Any) -> Any:
        """A value without parts."""
        return value

    def key(self, kind: Type, key: Any) -> Any:
        """The key of an entry of a map."""
        return key

    def of(self, kind: Type, value: Any) -> Any:
        """Structs are dicts by the names of their fields."""
        match kind:
            case _ if value is None:
                return None
            case Columns():
                fields = zip(kind.names, kind.types, value, strict=True)
                return {name: self.of(each, part) for name, each, part in fields}
            case Array():
                return [self.of(kind.item, item) for item in value]
            case MapOf():
                return {self.key(kind.key, k): self.of(kind.value, v) for k, v in value.items()}
        return self.scalar(value)


class _JsonWords(_Words):
    """As JSON has them."""

    def scalar(self, value: Any) -> Any:
        return plain(value)

    def key(self, kind: Type, key: Any) -> Any:
        """JSON has only text for it."""
        found = self.of(kind, key)
        return found if isinstance(found, str) else json.dumps(found)


_PYTHON = _Words()
_JSON = _JsonWords()

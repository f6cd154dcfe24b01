"""Answers: whether they are as declared, and how a record is written with its answer. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from onceflow.columns import Array, Columns, MapOf, Type, value_reader
from onceflow.protocol.ledger import canonical_json

HEADER_NAME = "onceflow.answer"
"""Header that says which answer came when, as JSON. The last one is the newest enrichment's."""
NULL = b"null"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is recorded.

    Args:
        text: JSON.
        at_ms: unix milliseconds at which it came, or at which it was given up.
        how: `asked`, `cached`, or `none` where the file lets null be written.
        why: there is none; else empty.
    """

    text: bytes
    at_ms: int
    how: str = "asked"
    why: str = ""

    def header(self, enrichment: str) -> tuple[str, bytes]:
        """The header of a record with this answer."""
        facts: dict[str, Any] = {"at_ms": self.at_ms, "enrichment": enrichment, "how": self.how}
        facts |= {"why": self.why} if self.why else {}
        return HEADER_NAME, canonical_json(facts).encode()


class AnswerReader:
    """Checks answers against the columns that the file declares."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def read(self, text: bytes) -> bytes:
        """Check an answer, and keep of it what the columns name. Numbers keep their digits.

        Raises:
            ValueError: says what was expected and found.
        """
        try:
            found = json.loads(
                text.decode(),
                parse_float=_number,
                parse_constant=_refuse_constant,
                object_pairs_hook=_unique,
            )
        except (ValueError, RecursionError) as error:
            told = f"{type(error).__name__}: {error}"[:200]
            raise ValueError(f"expected an answer in JSON, found {told}") from None
        if not isinstance(found, dict):
            kind = type(found).__name__
            raise ValueError(f"expected an answer that is a JSON object, found {kind}")  # noqa: TRY004  a bad value
        for name, column in self._columns.by_name.items():
            self._check(name, column, found.get(name))
        return _json_text(_kept(self._columns, found)).encode()

    def _check(self, name: str, kind: Type, value: Any) -> None:
        if value is None:
            if name in self._columns.required:
                raise ValueError(f"answer, {name}: expected a value, found null")
            return
        try:
            value_reader(kind)(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            found = f"{type(value).__name__} {value!r:.60}"
            why = f" ({error})" if str(error) else ""
            raise ValueError(f"answer, {name}: expected {kind.ddl}, found {found}{why}") from None


def require_room(value: bytes, column: str) -> None:
    """Check that a record can take an answer as one more field.

    Args:
        value: of the record; it was decoded as a JSON object.
        column: name of the field.

    Raises:
        ValueError: it is not UTF-8 without a byte order mark, or has such a field.
    """
    text = value.strip(b" \t\r\n")
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise ValueError("expected JSON in UTF-8 without a byte order mark")
    if column in json.loads(text.decode()):
        raise ValueError(f"the record has a field `{column}` already")


def with_answer(value: bytes, column: str, answer: Answer) -> bytes:
    """The record's JSON object as it came, and the answer as its last field."""
    text = value.strip(b" \t\r\n")
    begun = text[:-1].rstrip(b" \t\r\n")
    comma = b"" if begun == b"{" else b","
    return begun + comma + json.dumps(column).encode() + b":" + answer.text + b"}"


def _number(text: str) -> Decimal:
    if math.isinf(float(text)):
        raise ValueError(f"{text[:20]} is too large for a number")
    return Decimal(text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the field {name[:60]!r} is there twice")
        found[name] = value
    return found


def _kept(kind: Type, value: Any) -> Any:
    """A checked value without the fields that its type does not name, at any depth."""
    if value is None:
        return None
    match kind:
        case Columns():
            return {name: _kept(each, value.get(name)) for name, each in kind.by_name.items()}
        case Array():
            return [_kept(kind.item, each) for each in value]
        case MapOf():
            return {key: _kept(kind.value, each) for key, each in value.items()}
    return value


def _json_text(value: Any) -> str:
    """As `json.dumps`, which cannot write a decimal as a number."""
    match value:
        case dict():
            return (
                "{" + ",".join(f"{json.dumps(k)}:{_json_text(v)}" for k, v in value.items()) + "}"
            )
        case list():
            return "[" + ",".join(map(_json_text, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)

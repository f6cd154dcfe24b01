"""From Python values to values that Arrow takes for a column: strict, one value at a time.

The slow path of every format, and the only one for the types that Arrow's own parsers lack. Strict:
a value of another kind is refused, never turned into null or into text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

MAX_REASON_LENGTH = 200
"""Of a reason in an error: it may quote a whole payload."""
_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])
"""Refuses to round. 76 digits is what Arrow's widest decimal holds."""


class PayloadError(ValueError):
    """A payload cannot be decoded."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = " ".join(reason.split())[:MAX_REASON_LENGTH]


CONVERSION_ERRORS = (ValueError, TypeError, ArithmeticError, KeyError)
"""What the conversion of one value may raise; Arrow's own errors are among the first two."""


def column(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """One column from Python values; None is null.

    Raises:
        CONVERSION_ERRORS: a value does not fit.
    """
    convert = converter(arrow_type)
    return pa.array([None if v is None else convert(v) for v in values], arrow_type)


def converter(arrow_type: pa.DataType) -> Callable[[Any], Any]:
    """Function from a value, which is not None, to what `pa.array` takes for `arrow_type`."""
    if pat.is_list(arrow_type):
        return _list_of(converter(arrow_type.value_type))
    if pat.is_struct(arrow_type):
        return _struct_of({field.name: converter(field.type) for field in arrow_type})
    if pat.is_map(arrow_type):
        return _map_of(converter(arrow_type.key_type), converter(arrow_type.item_type))
    if pat.is_timestamp(arrow_type):
        return _timestamp_in(arrow_type.tz)
    if pat.is_decimal(arrow_type):
        return _decimal_of(arrow_type.scale)
    for matches, convert in _SCALARS:
        if matches(arrow_type):
            return convert
    raise ValueError(f"columns of type {arrow_type} cannot be read")


def _wrong(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {value!r}")


def _exactly(kind: type, expected: str) -> Callable[[object], object]:
    """Take values of one class only: a bool is not an int."""

    def convert(value: object) -> object:
        if type(value) is kind:
            return value
        raise _wrong(value, expected)

    return convert


def _floating(value: object) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number):
            return number
    raise _wrong(value, "a number that a DOUBLE can hold")


def _binary(value: object) -> bytes:
    """Bytes as they are; text is base64, as in Spark's JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise _wrong(value, "base64 text")


def _date(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str):
        return date.fromisoformat(value)
    raise _wrong(value, "an ISO 8601 date")


def _timestamp_in(zone: str | None) -> Callable[[object], datetime]:
    def convert(value: object) -> datetime:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if not isinstance(value, datetime):
            raise _wrong(value, "an ISO 8601 timestamp")
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return utc if zone else utc.replace(tzinfo=None)

    return convert


def _decimal_of(scale: int) -> Callable[[object], Decimal]:
    step = Decimal(1).scaleb(-scale)

    def convert(value: object) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise _wrong(value, "a decimal number")
        return Decimal(value).quantize(step, context=_EXACT)

    return convert


def _list_of(element: Callable[[Any], Any]) -> Callable[[object], list[Any]]:
    def convert(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(value, "an array")
        return [None if v is None else element(v) for v in value]

    return convert


def _struct_of(fields: dict[str, Callable[[Any], Any]]) -> Callable[[object], dict[str, Any]]:
    def convert(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        given = {name: value.get(name) for name in fields}
        return {name: None if v is None else fields[name](v) for name, v in given.items()}

    return convert


def _map_of(
    key: Callable[[Any], Any], item: Callable[[Any], Any]
) -> Callable[[object], list[tuple[Any, Any]]]:
    def convert(value: object) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        return [(key(k), None if v is None else item(v)) for k, v in value.items()]

    return convert


_SCALARS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[object], Any]]] = (
    (pat.is_boolean, _exactly(bool, "a boolean")),
    (pat.is_integer, _exactly(int, "a whole number")),
    (pat.is_floating, _floating),
    (pat.is_string, _exactly(str, "a string")),
    (pat.is_binary, _binary),
    (pat.is_date32, _date),
)

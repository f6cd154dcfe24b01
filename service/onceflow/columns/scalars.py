"""Values of the types without parts: which are taken, and what they become.

Each function returns the value as its type keeps it. It raises TypeError if the value is of another
type, and ValueError or ArithmeticError, perhaps with a reason, if it does not fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

MAX_EXACT_INT = 2**53
"""The largest integer up to which a double has all of them."""


def boolean(value: Any) -> bool:
    """True and False; numbers are not truth values here."""
    if not isinstance(value, bool):
        raise TypeError
    return value


def integer(bits: int) -> Callable[[Any], int]:
    """Make the check of integers of this size; those of numpy become `int`."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def accept(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError
            value = int(value.__index__())
        if low <= value <= high:
            return int(value)
        raise ValueError(f"it must be from {low} to {high}")

    return accept


def double(value: Any) -> float:
    """A float, or an integer that a double has exactly."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if isinstance(value, int) and abs(value) > MAX_EXACT_INT:
        raise ValueError("a double does not have every integer of this size")
    return float(value)


def float32(value: Any) -> float:
    """The nearest number of 32 bits."""
    number = double(value)
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise ValueError("it is out of the range of a float") from None
    return float(nearest)


def string(value: Any) -> str:
    """Text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise TypeError
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair, which UTF-8 does not") from None
    return value if type(value) is str else str.__str__(value)


def binary(value: Any) -> bytes:
    """A copy, unless it is `bytes`."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def day(value: Any) -> date:
    """A date; a datetime is not cut to one."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError
    return value


def moment(value: Any) -> datetime:
    """A datetime with a zone, as UTC."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if not isinstance(value, datetime):
        raise TypeError
    if value.utcoffset() is None:
        raise ValueError("it needs a zone, such as datetime(..., tzinfo=UTC)")
    return _plain(value if value.tzinfo is UTC else value.astimezone(UTC))


def wall_time(value: Any) -> datetime:
    """A datetime without a zone."""
    if not isinstance(value, datetime):
        raise TypeError
    if value.tzinfo is not None:
        raise ValueError("it must not have a zone")
    return _plain(value)


def _plain(value: datetime) -> datetime:
    """Not of a subclass, such as pandas's, which has nanoseconds."""
    if type(value) is datetime:
        return value
    return datetime.combine(value.date(), value.time(), value.tzinfo)


def decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    """Make the check of numbers of this many digits in all, and this many after the point."""
    unit = Decimal(1).scaleb(-scale)
    # Raises instead of rounding, and where there are more digits than `precision`.
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def accept(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError("it must be finite")
        try:
            # A zero has a sign here, but none in Avro and Arrow.
            return number.quantize(unit, context=exact) if number else abs(unit * 0)
        except Inexact:
            raise ValueError("too many digits after the point") from None
        except InvalidOperation:
            raise ValueError("too many digits before the point") from None

    return accept

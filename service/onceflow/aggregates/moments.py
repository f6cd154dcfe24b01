"""Sums, means and variances that are exact until the result is rounded, once.

A number is a whole count of units: 1 for integers, 10^-s for decimals, and for doubles 2^-1074,
the smallest of them. Sums of units have no upper limit, so nothing is lost on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from onceflow.aggregates.aggregate import Aggregate
from onceflow.columns import Scalar, Type, parse_type

_DOUBLE_UNITS = 2**1074
_MORE_DIGITS = 10
_MAX_DIGITS = 38


class Sums(NamedTuple):
    """Counts and sums. Whatever is not finite is counted apart."""

    n: int
    nan: int
    plus: int
    minus: int
    first: bytes
    """Sum of units, as two's complement."""
    second: bytes
    """Sum of squares of units, likewise; empty if it is not needed."""


class _Moments(Aggregate):
    accumulator = "n bigint, nan bigint, plus bigint, minus bigint, first binary, second binary"
    output = "double"
    squares = False

    def __init__(self, type: str) -> None:  # noqa: A002
        """Look at the type.

        Args:
            type: of the values, a number.

        Raises:
            ConfigError: the type is not known.
            ValueError: it is not one of numbers.
        """
        self.input = type
        self.units, self._to_units = _units(parse_type(type))

    @property
    def name(self) -> str:
        """With the unit: the same number of other units is another sum."""
        unit = "(double)" if self.units == _DOUBLE_UNITS else f"(1/{self.units})"
        return type(self).__name__ + unit * (self.units > 1)

    def zero(self) -> Sums:
        return Sums(0, 0, 0, 0, b"", b"")

    def add(self, acc: Sums, value: Any) -> Sums:
        return acc if value is None else self._with(acc, value, 1)

    def subtract(self, acc: Sums, value: Any) -> Sums:
        return acc if value is None else self._with(acc, value, -1)

    def _with(self, acc: Sums, value: Any, change: int) -> Sums:
        n, nan, plus, minus, first, second = acc
        if not math.isfinite(value):
            nan += change * math.isnan(value)
            plus += change * (value == math.inf)
            minus += change * (value == -math.inf)
            return Sums(n + change, nan, plus, minus, first, second)
        units = self._to_units(value)
        first = _bytes(_int(first) + change * units)
        if self.squares:
            second = _bytes(_int(second) + change * units * units)
        return Sums(n + change, nan, plus, minus, first, second)

    def merge(self, a: Sums, b: Sums) -> Sums:
        n, nan, plus, minus, first, second = a
        return Sums(
            n + b.n,
            nan + b.nan,
            plus + b.plus,
            minus + b.minus,
            _bytes(_int(first) + _int(b.first)),
            _bytes(_int(second) + _int(b.second)),
        )

    def _not_finite(self, acc: Sums) -> float | None:
        """The sum, if a value was not finite."""
        if acc.nan or (acc.plus and acc.minus):
            return math.nan
        if acc.plus or acc.minus:
            return math.inf if acc.plus else -math.inf
        return None


class Sum(_Moments):
    """The sum, or null of no values.

    It is exact for integers (`decimal(38,0)`) and decimals (10 more digits); for doubles it is the
    nearest double to the exact sum.

    Args:
        type: of the values, a number.

    Raises:
        ConfigError: the type is not known.
        ValueError: it is not one of numbers, or a decimal of more than 28 digits.
    """

    def __init__(self, type: str) -> None:  # noqa: A002
        super().__init__(type)
        self._scale = 0
        kind = parse_type(type)
        if digits := _digits(kind):
            precision, self._scale = digits
            if precision + _MORE_DIGITS > _MAX_DIGITS:
                raise ValueError(f"a sum needs {_MORE_DIGITS} more digits than {kind.ddl} leaves")
            self.output = f"decimal({precision + _MORE_DIGITS},{self._scale})"
        elif self.units == 1:
            self.output = f"decimal({_MAX_DIGITS},0)"

    def result(self, acc: Sums) -> float | Decimal | None:  # noqa: D102
        if not acc.n:
            return None
        total = _int(acc.first)
        if self.output != "double":
            digits = tuple(int(each) for each in str(abs(total)))
            return Decimal((int(total < 0), digits, -self._scale))
        found = self._not_finite(acc)
        return _nearest(Fraction(total, self.units)) if found is None else found


class Mean(_Moments):
    """The nearest double to the exact mean, or null of no values.

    Args:
        type: of the values, a number.

    Raises:
        ConfigError: the type is not known.
        ValueError: it is not one of numbers.
    """

    def result(self, acc: Sums) -> float | None:  # noqa: D102
        if not acc.n:
            return None
        found = self._not_finite(acc)
        return _nearest(Fraction(_int(acc.first), self.units * acc.n)) if found is None else found


class Variance(_Moments):
    """The nearest double to the exact variance of a sample, or null of fewer than two values.

    It is NaN if a value is not finite.

    Args:
        type: of the values, a number.

    Raises:
        ConfigError: the type is not known.
        ValueError: it is not one of numbers.
    """

    squares = True

    def result(self, acc: Sums) -> float | None:  # noqa: D102
        if acc.n < 2:
            return None
        if self._not_finite(acc) is not None:
            return math.nan
        spread = acc.n * _int(acc.second) - _int(acc.first) ** 2
        return _nearest(Fraction(spread, self.units**2 * acc.n * (acc.n - 1)))


def _units(kind: Type) -> tuple[int, Callable[[Any], int]]:
    """How many units are 1, and how a finite value becomes units."""
    if kind.ddl in {"tinyint", "smallint", "int", "bigint"}:
        return 1, int
    if kind.ddl in {"float", "double"}:
        return _DOUBLE_UNITS, _double_units
    if digits := _digits(kind):
        _, scale = digits
        # Not by arithmetic of Decimal, which rounds to 28 digits.
        return 10**scale, lambda value: _decimal_units(value, 10**scale)
    raise ValueError(f"expected a type of numbers, found {kind.ddl}")


def _double_units(value: float) -> int:
    above, below = value.as_integer_ratio()
    return above * (_DOUBLE_UNITS // below)


def _decimal_units(value: Decimal, units: int) -> int:
    above, below = value.as_integer_ratio()
    return above * units // below


def _digits(kind: Type) -> tuple[int, int] | None:
    return kind.digits if isinstance(kind, Scalar) else None


def _bytes(number: int) -> bytes:
    """The shortest two's complement; zero is empty, so that equal sums are equal bytes."""
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, "big", signed=True) if number else b""


def _int(content: bytes) -> int:
    return int.from_bytes(content, "big", signed=True)


def _nearest(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf

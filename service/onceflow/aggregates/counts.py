"""Counts of values, in all and between bounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from onceflow.aggregates.aggregate import Aggregate, order
from onceflow.columns import Scalar, parse_type


class Count(Aggregate):
    """How many values are not null.

    Args:
        type: of the values.
    """

    accumulator = "bigint"
    output = "bigint"

    def __init__(self, type: str = "string") -> None:  # noqa: A002
        self.input = type

    def zero(self) -> int:  # noqa: D102
        return 0

    def add(self, acc: int, value: Any) -> int:  # noqa: D102
        return acc + (value is not None)

    def merge(self, a: int, b: int) -> int:  # noqa: D102
        return a + b

    def subtract(self, acc: int, value: Any) -> int:  # noqa: D102
        return acc - (value is not None)

    def result(self, acc: int) -> int:  # noqa: D102
        return acc


class Histogram(Aggregate):
    """How many values lie below the first bound, between each two, and from the last on.

    A value that equals a bound lies above it; NaN lies above all bounds.

    Args:
        type: of the values, one without parts.
        bounds: ascending.

    Raises:
        ConfigError: the type is not known.
        ValueError: the bounds are not ascending values of the type.
    """

    accumulator = "array<bigint>"
    output = "array<bigint>"

    def __init__(self, type: str, bounds: Sequence[Any]) -> None:  # noqa: A002
        kind = parse_type(type)
        if not isinstance(kind, Scalar):
            raise ValueError(f"expected a type without parts, found {type}")  # noqa: TRY004
        self.input = type
        self.bounds = tuple(kind.check(each) for each in bounds)
        # So that -0.0 counts as 0.0.
        self._keys = [self._key(each) for each in self.bounds]
        if not self._keys or any(a >= b for a, b in zip(self._keys, self._keys[1:], strict=False)):
            raise ValueError(f"bounds must be ascending, and at least one; found {list(bounds)}")

    @property
    def name(self) -> str:
        """With the bounds."""
        return f"Histogram({', '.join(map(str, self.bounds))})"

    def _key(self, value: Any) -> Any:
        return order(value + 0.0 if isinstance(value, float) else value)

    def _with(self, acc: list[int], value: Any, change: int) -> list[int]:
        if value is None:
            return acc
        at = bisect_right(self._keys, self._key(value))
        return [*acc[:at], acc[at] + change, *acc[at + 1 :]]

    def zero(self) -> list[int]:  # noqa: D102
        return [0] * (len(self.bounds) + 1)

    def add(self, acc: list[int], value: Any) -> list[int]:  # noqa: D102
        return self._with(acc, value, 1)

    def merge(self, a: list[int], b: list[int]) -> list[int]:  # noqa: D102
        return [x + y for x, y in zip(a, b, strict=True)]

    def subtract(self, acc: list[int], value: Any) -> list[int]:  # noqa: D102
        return self._with(acc, value, -1)

    def result(self, acc: list[int]) -> list[int]:  # noqa: D102
        return acc

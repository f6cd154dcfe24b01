"""The smallest, the largest and the last of values, by the total order of `aggregate.order`."""

from __future__ import annotations

from typing import Any

from onceflow.aggregates.aggregate import Aggregate, order
from onceflow.columns import parse_type


class Max(Aggregate):
    """The largest value, or null. Only equal values tie.

    Args:
        type: of the values; structs are compared column by column.
    """

    def __init__(self, type: str) -> None:  # noqa: A002
        self.input = self.accumulator = self.output = type

    def zero(self) -> None:  # noqa: D102
        return None

    def add(self, acc: Any, value: Any) -> Any:  # noqa: D102
        return self.merge(acc, value)

    def merge(self, a: Any, b: Any) -> Any:  # noqa: D102
        # Null is the smallest.
        return a if order(a) >= order(b) else b

    def result(self, acc: Any) -> Any:  # noqa: D102
        return acc


class Min(Max):
    """The smallest value, or null. Only equal values tie.

    Args:
        type: of the values; structs are compared column by column.
    """

    def merge(self, a: Any, b: Any) -> Any:  # noqa: D102
        if a is None or b is None:
            return b if a is None else a
        return a if order(a) <= order(b) else b


class LastByTime(Max):
    """The value with the latest time; of several, the largest. Null without a time or a value.

    Args:
        type: of the values.

    Raises:
        ConfigError: the type is not known.
    """

    def __init__(self, type: str) -> None:  # noqa: A002
        kind = parse_type(type)
        super().__init__(f"at timestamp, value {kind.ddl}")
        self.output = type

    def add(self, acc: Any, value: Any) -> Any:  # noqa: D102
        missing = value is None or value[0] is None or value[1] is None
        return acc if missing else self.merge(acc, value)

    def result(self, acc: Any) -> Any:  # noqa: D102
        return None if acc is None else acc[1]


class TopK(Aggregate):
    """The largest values, from the largest on; equal values count each.

    To rank by a column, put it first in a struct: the next columns decide ties.

    Args:
        type: of the values.
        k: how many.

    Raises:
        ConfigError: the type is not known.
        ValueError: `k` is not from 1 to 10,000.
    """

    def __init__(self, type: str, k: int) -> None:  # noqa: A002
        if not 1 <= k <= 10_000:
            raise ValueError(f"k must be from 1 to 10,000, found {k}")
        self.k = k
        self.input = type
        self.accumulator = self.output = f"array<{parse_type(type).ddl}>"

    @property
    def name(self) -> str:
        """With the number."""
        return f"TopK({self.k})"

    def zero(self) -> list[Any]:  # noqa: D102
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:  # noqa: D102
        return acc if value is None else self.merge(acc, [value])

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:  # noqa: D102
        return sorted([*a, *b], key=order, reverse=True)[: self.k]

    def result(self, acc: list[Any]) -> list[Any]:  # noqa: D102
        return acc

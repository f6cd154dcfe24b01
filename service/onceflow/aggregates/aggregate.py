"""The base of aggregates, and the total order of values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class Aggregate(ABC):
    """A commutative monoid: values are added to an accumulator, and accumulators are merged.

    The order of values, and how they are split among accumulators, changes nothing. Accumulators
    are never changed in place. `onceflow.aggregates.laws.check_laws` looks whether this holds.
    """

    input: str
    """Type of the values, in Spark SQL, such as `double` or `card string, amount decimal(10,2)`."""
    accumulator: str
    """Type of what is kept. Null fits every type."""
    output: str
    """Type of the result."""
    samples: Sequence[Any] = ()
    """Values as there are in practice, with which the laws are looked at as well."""

    @property
    def name(self) -> str:
        """The class, and whatever else decides what an accumulator means."""
        return type(self).__name__

    @abstractmethod
    def zero(self) -> Any:
        """The accumulator of no values."""

    @abstractmethod
    def add(self, acc: Any, value: Any) -> Any:
        """The accumulator with one more value."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """The accumulator of the values of both."""

    @abstractmethod
    def result(self, acc: Any) -> Any:
        """The outcome for the values of an accumulator."""

    def subtract(self, acc: Any, value: Any) -> Any:
        """The accumulator without a value that was added. Optional."""
        raise NotImplementedError(f"{self.name} cannot take a value back")

    @property
    def can_subtract(self) -> bool:
        """Whether values can be taken back."""
        return type(self).subtract is not Aggregate.subtract


def order(value: Any) -> Any:
    """A key that puts values of one type in a total order.

    Null is the smallest and NaN the largest; -0.0 is below 0.0; structs and arrays go by their
    parts, from the left. Only equal values have equal keys.
    """
    match value:
        case None:
            return (0,)
        case float():
            return (2,) if math.isnan(value) else (1, value, math.copysign(1, value))
        case list() | tuple():
            return (1, tuple(order(each) for each in value))
        case Mapping():
            return (1, tuple((order(key), order(value[key])) for key in sorted(value)))
    return (1, value)

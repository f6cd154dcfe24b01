"""State of a processor that an aggregate keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from onceflow.aggregates import Aggregate
from onceflow.columns import Type, parse_type
from onceflow.processing.state import Clock, Live, LiveValue, State, Value


class LiveAggregate(Live):
    """One key's accumulator."""

    def __init__(self, declared: Aggregated, kept: LiveValue, clock: Clock) -> None:
        super().__init__(clock, declared.ttl)
        self._aggregate = declared.aggregate
        self._input, self._type = declared.input, declared.type
        self._kept = kept

    def _accumulator(self) -> Any:
        found = self._kept.get()
        return self._aggregate.zero() if found is None else found

    def add(self, value: Any) -> None:
        """Add a value. The time to live begins again.

        Raises:
            ValueError: it is not of the aggregate's input type.
        """
        self._kept.set(self._aggregate.add(self._accumulator(), self._input.check(value)))

    def merge(self, acc: Any) -> None:
        """Add all values of another accumulator. The time to live begins again.

        Raises:
            ValueError: it is not of the aggregate's accumulator type.
        """
        other = self._aggregate.zero() if acc is None else self._type.check(acc)
        self._kept.set(self._aggregate.merge(self._accumulator(), other))

    def result(self) -> Any:
        """The outcome for all values."""
        return self._aggregate.result(self._accumulator())

    def clear(self) -> None:
        """Forget all values."""
        self._kept.clear()

    def expiries(self) -> Iterator[datetime]:
        """When it ends."""
        return self._kept.expiries()

    def stored(self) -> object:
        """The accumulator as it is kept."""
        return self._kept.stored()


class Aggregated(State[LiveAggregate]):
    """An aggregate of values for each key.

    Args:
        aggregate: of `onceflow.aggregates`, or one of your own.
        ttl: time to live since the last value was added, in event time, such as `1 hour`.
    """

    verb = "add(...)"

    def __init__(self, aggregate: Aggregate, ttl: str | None = None) -> None:
        super().__init__(getattr(aggregate, "accumulator", ""), ttl)
        self.aggregate = aggregate
        self._value = Value(self._type, ttl=ttl)

    @cached_property
    def input(self) -> Type:
        """Type of the values.

        Raises:
            ConfigError: it is not a type.
        """
        return parse_type(self.aggregate.input)

    def check(self) -> None:
        """Look at the aggregate and its types as well."""
        if not isinstance(self.aggregate, Aggregate):
            found = type(self.aggregate).__name__
            raise ValueError(f"expected an onceflow.aggregates.Aggregate, found {found}")  # noqa: TRY004
        for part in ("input", "accumulator", "output"):
            if not isinstance(getattr(self.aggregate, part, None), str):
                raise ValueError(f"{self.aggregate.name} does not declare its {part} type")  # noqa: TRY004
            parse_type(getattr(self.aggregate, part))
        super().check()

    def declared(self) -> Mapping[str, Any]:
        """With the aggregate: an accumulator means nothing to another one."""
        return {**super().declared(), "kind": f"{self.aggregate.name} aggregate"}

    def avro(self, namespace: str) -> Any:
        """A union with null."""
        return self._value.avro(namespace)

    def live(self, stored: Any, clock: Clock) -> LiveAggregate:
        """The accumulator of a key."""
        return LiveAggregate(self, self._value.live(stored, clock), clock)

    def view(self, stored: Any, now: datetime) -> Any:
        """The result."""
        return self.live(stored, lambda: now).result()

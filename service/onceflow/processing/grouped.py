"""The processor of a GROUP BY with aggregates: merges what tasks have made of their own rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from types import new_class
from typing import Any, ClassVar

from onceflow.aggregates import Aggregate
from onceflow.processing.aggregated import Aggregated, LiveAggregate
from onceflow.processing.processor import Processor, Row

CLOSES = "closes"
"""Column with the time after which a group gets no more rows, if there is such a time."""
AT = "at"
"""Column with the event time of a group's rows, earlier than `CLOSES`."""


class Grouped(Processor):
    """Base class of such processors; `grouped` makes them.

    Attributes:
        emits_updates: whether a row leaves with each change, and not only when the group closes.
    """

    null_keys = True
    emits_updates: ClassVar[bool] = False

    def on_records(self, key: Any, records: Iterable[Any]) -> Iterator[Row]:
        """Merge accumulators, which are columns under the names of the state."""
        for record in records:
            for name, merged in self._merged():
                merged.merge(getattr(record, name))
            if (closes := getattr(record, CLOSES, None)) is not None:
                self.timers.at(closes)
        if self.emits_updates:
            yield self._row(key)

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Row]:
        """Close the group."""
        if not self.emits_updates:
            yield self._row(key)
        for _, merged in self._merged():
            merged.clear()

    def _row(self, key: Any) -> Row:
        values = key if len(self.key) > 1 else (key,)
        return (*values, *(merged.result() for _, merged in self._merged()))

    def _merged(self) -> Iterable[tuple[str, LiveAggregate]]:
        return ((n, each) for n, each in self.live.items() if isinstance(each, LiveAggregate))


def grouped(
    keys: Sequence[str], aggregates: Sequence[Aggregate], *, emits_updates: bool
) -> type[Grouped]:
    """Make the processor of some aggregates; accumulators and results are `r0` and so on."""
    state = {f"r{place}": Aggregated(each) for place, each in enumerate(aggregates)}
    own = {"key": tuple(keys), "emits_updates": emits_updates}
    return new_class("Grouped", (Grouped,), exec_body=lambda body: body.update(own, **state))

"""Running totals: a row for each record, with the results of all records so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceflow.windows.window import Kept, Window


class RunningTotals(Window):
    """A row for each record of a key, with the results of all its records so far.

    `window_start` and `window_end` are the earliest and the latest event time of these records.
    One accumulator is kept for each key.

    Attributes:
        ttl: after this time without a record, totals start again. Left out: never, and each key
            is kept forever.
    """

    kept = Kept("first timestamp, last timestamp, totals {totals}")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        """Add each record."""
        together = self.together()
        for record in records:
            first, last, totals = self.kept.get() or (self.now, self.now, together.zero())
            totals = together.add(totals, together.value(record))
            first, last = min(first, self.now), max(last, self.now)
            self.kept.set((first, last, totals))
            yield self.row(key, first, last, totals)

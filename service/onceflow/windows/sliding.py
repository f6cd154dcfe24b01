"""Sliding windows: a row for each record, with the results of a length of time up to it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import reduce
from operator import itemgetter
from typing import Any, ClassVar

from onceflow.errors import Fault
from onceflow.processing.state import duration
from onceflow.windows.window import Kept, KeptList, Window, duration_faults, ttl_faults


class SlidingWindow(Window):
    """A row for each record of a key, with the results of the last `length` of time.

    A window has the records after `window_start` and up to `window_end`, which is the latest event
    time of the key. So a record that comes after a later one, as it may with `when: arrival`, joins
    the window of that one; if it is too old for it, it changes nothing and gives no row.

    What the results take of each record is kept for `length`. If all aggregates can take values
    back, a row adds one value and takes back those that leave; if not, it adds all values again.

    Attributes:
        length: of a window, such as `10 minutes`.
    """

    length: ClassVar[str]
    totals = Kept("{totals}")
    values = KeptList("at timestamp, value {value}")

    @classmethod
    def faults(cls) -> Iterator[Fault]:
        """The length as well."""
        yield from super().faults()
        yield from duration_faults(cls, "length")
        yield from ttl_faults(cls, "records are kept for `length`")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        """Move the window to each record."""
        length = duration("length", self.length)
        for record in records:
            kept = list(self.values)
            end = max(self.now, kept[-1][0]) if kept else self.now
            if self.now > end - length:
                totals = self._moved(kept, self.together().value(record), end - length)
                yield self.row(key, end - length, end, totals)
                self.timers.cancel()
                self.timers.at(end + length)

    def on_timer(self, key: Any, at: datetime, name: str) -> None:
        """Forget everything: nothing of it is in the window of a later record."""
        self.totals.clear()
        self.values.clear()

    def _moved(self, kept: Sequence[Any], value: Any, start: datetime) -> Any:
        """Keep a value, drop those up to the start, and give the accumulators of the rest."""
        of_time, together = itemgetter(0), self.together()
        place = bisect_right(kept, self.now, key=of_time)
        now_kept = [*kept[:place], (self.now, value), *kept[place:]]
        left = bisect_right(now_kept, start, key=of_time)
        if place == len(kept):
            self.values.append(now_kept[-1])
        else:
            self.values.replace(now_kept)
        self.values.drop_first(left)
        if not together.can_subtract:
            return self._added(now_kept[left:])
        totals = together.add(self.totals.get() or self._added(kept), value)
        totals = reduce(together.subtract, (old for _, old in now_kept[:left]), totals)
        self.totals.set(totals)
        return totals

    def _added(self, kept: Sequence[Any]) -> Any:
        together = self.together()
        return reduce(together.add, (value for _, value in kept), together.zero())

"""The last hour of something that runs, in memory: what charts of the status page are drawn from.

It ends with the process. Prometheus keeps what is to be kept for longer.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from onceflow.clock import Clock

INTERVAL_S = 5
SLOTS = 720
"""An hour of intervals: 8 bytes for each column of each, so some 120 KB for a pipeline."""
MAX_MARKS = 200
"""Of an hour: what fails again and again keeps its newest ones."""
MAX_TEXT = 300
"""Characters of a mark: the error itself is shown elsewhere."""


class Hour(ABC):
    """Listens to the runs of one file. For several threads at once.

    Time is cut into intervals of `INTERVAL_S`. They are counted on the monotonic clock, so that
    a machine whose clock is set neither mixes nor repeats them.

    Attributes:
        rates: names of columns that count; shown per second.
        trend: the one of them that the overview draws.
        others: names of columns of another kind.
    """

    rates: ClassVar[tuple[str, ...]]
    trend: ClassVar[str]
    others: ClassVar[tuple[str, ...]]

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        names = (*self.rates, *self.others)
        self._columns = {name: array("d", [math.nan]) * SLOTS for name in names}
        self._first = self._newest = self._slot_at(clock.monotonic_s())
        self._marks: deque[tuple[float, str, str]] = deque(maxlen=MAX_MARKS)

    def __call__(self, event: str, /, **facts: Any) -> None:
        """Take in what happened, as a `Report`."""
        with self._lock:
            self._hear(event, facts, self._clock.monotonic_s())

    def trend_per_s(self) -> Sequence[float | None]:
        """Only the column `trend` of `fields`."""
        with self._lock:
            return self._rate(self.trend, self._whole_slots(self._clock.monotonic_s()))

    def fields(self) -> Mapping[str, Any]:
        """Columns of the whole intervals since the beginning, oldest first; None is unknown."""
        with self._lock:
            now_s, now_ms = self._clock.monotonic_s(), self._clock.unix_ms()
            slots = self._whole_slots(now_s)
            oldest_s = (self._newest - SLOTS + 1) * INTERVAL_S

            def dated(at_s: float) -> int:
                return now_ms - round((now_s - at_s) * 1000)

            return {
                "interval_s": INTERVAL_S,
                "at_ms": [dated(slot * INTERVAL_S) for slot in slots],
                **{f"{name}_per_s": self._rate(name, slots) for name in self.rates},
                **self._more_fields(slots),
                "marks": [
                    {"at_ms": dated(at_s), "what": what, "text": text}
                    for at_s, what, text in self._marks
                    if at_s >= oldest_s
                ],
            }

    @abstractmethod
    def _hear(self, event: str, facts: Mapping[str, Any], now_s: float) -> None:
        """Take in what happened."""

    @abstractmethod
    def _more_fields(self, slots: Sequence[int]) -> Mapping[str, Any]:
        """Fields besides rates and marks."""

    def _rates_end(self) -> int:
        """The first interval whose rates are not known yet."""
        return self._newest + 1

    def _mark_end(self, event: str, facts: Mapping[str, Any], now_s: float) -> None:
        text = f"{facts['error']}: {facts['text']}" if "error" in facts else ""
        self._mark(now_s, event, text)

    def _spread(self, counts: Mapping[str, float], began_s: float, ended_s: float) -> None:
        """Records of a batch came in all the time before its end, not at its end."""
        self._moved_to(ended_s)
        took_s = ended_s - began_s
        for slot in self._slots_since(began_s):
            from_s, to_s = slot * INTERVAL_S, (slot + 1) * INTERVAL_S
            share = (min(to_s, ended_s) - max(from_s, began_s)) / took_s if took_s > 0 else 1.0
            if share > 0:  # an interval that begins at the end has no part in it
                for name, count in counts.items():
                    self._add(name, slot % SLOTS, count * share)

    def _slots_since(self, began_s: float) -> range:
        """The intervals from a moment to the newest, as far as they are kept."""
        oldest = max(self._first, self._newest - SLOTS + 1)
        return range(max(oldest, self._slot_at(began_s)), self._newest + 1)

    def _add(self, name: str, place: int, amount: float) -> None:
        column = self._columns[name]
        column[place] = amount if math.isnan(column[place]) else column[place] + amount

    def _mark(self, now_s: float, what: str, text: str) -> None:
        self._marks.append((now_s, what, text[:MAX_TEXT]))

    def _moved_to(self, now_s: float) -> int:
        """The place of the interval that it is now; what stood there an hour ago is forgotten."""
        slot = self._slot_at(now_s)
        for passed in range(max(self._newest, slot - SLOTS) + 1, slot + 1):
            self._forget(passed % SLOTS)
        self._newest = max(self._newest, slot)
        return self._newest % SLOTS

    def _forget(self, place: int) -> None:
        for column in self._columns.values():
            column[place] = math.nan

    def _whole_slots(self, now_s: float) -> range:
        self._moved_to(now_s)
        return range(max(self._first, self._newest - SLOTS + 1), self._newest)

    def _slot_at(self, at_s: float) -> int:
        return int(at_s // INTERVAL_S)

    def _told(self, name: str, slots: Sequence[int]) -> Sequence[float | None]:
        column = self._columns[name]
        return [_rounded(column[slot % SLOTS]) for slot in slots]

    def _rate(self, name: str, slots: Sequence[int]) -> Sequence[float | None]:
        column, end = self._columns[name], self._rates_end()
        rates = (column[slot % SLOTS] / INTERVAL_S if slot < end else math.nan for slot in slots)
        return [_rounded(rate) for rate in rates]

    def _mean(self, name: str, by: str, slots: Sequence[int]) -> Sequence[float | None]:
        """A column of sums, divided by one that counts."""
        sums, counts = self._columns[name], self._columns[by]
        return [_rounded(_quotient(sums[n % SLOTS], counts[n % SLOTS])) for n in slots]


def _quotient(total: float, count: float) -> float:
    return total / count if count else math.nan


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 2)

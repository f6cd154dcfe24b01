"""Timer windows: a row for each key and period, once event time has passed its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from onceflow.errors import Fault
from onceflow.processing.state import duration
from onceflow.windows.periods import period_around
from onceflow.windows.window import Kept, Window, duration_faults, number_faults, ttl_faults


class TimerWindow(Window):
    """A row for each period of a key, once the event watermark has passed its end.

    Periods count from 1970-01-01, as those of SQL's `window`. With a zone they are of its days,
    which have 23 or 25 hours when clocks change. `window_end` is not part of the window. One
    accumulator is kept for each period that has not ended.

    Attributes:
        every: length of a period, such as `1 hour`; with a zone, whole days.
        zone: such as `Europe/Berlin`. Left out: UTC.
        empty: how many periods without records have a row as well, after one with records.
    """

    every: ClassVar[str]
    zone: ClassVar[str | None] = None
    empty: ClassVar[int] = 0
    kept = Kept("array<struct<start:timestamp,end:timestamp,empty:bigint,totals:{totals}>>")

    @classmethod
    def faults(cls) -> Iterator[Fault]:
        """The period as well."""
        yield from super().faults()
        yield from ttl_faults(cls, "what is kept ends with its period")
        yield from number_faults(cls, "empty", 0)
        if faults := [*duration_faults(cls, "every")]:
            yield from faults
        elif cls.zone is not None:
            yield from _faults_of_zone(cls.__name__, cls.zone, duration("every", cls.every))

    def on_records(self, key: Any, records: Any) -> None:
        """Add each record to its period."""
        windows, together = self._open(), self.together()
        for record in records:
            period = self._period(self.now)
            _, totals = windows.get(period, (0, together.zero()))
            windows[period] = 0, together.add(totals, together.value(record))
            self.timers.at(period[1])
        self._keep(windows)

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        """Give the rows of periods that have ended."""
        windows = self._open()
        for start, end in [each for each in windows if each[1] <= at]:
            empty, totals = windows.pop((start, end))
            yield self.row(key, start, end, totals)
            period = self._period(end)
            if empty < self.empty and period not in windows:
                windows[period] = empty + 1, self.together().zero()
                self.timers.at(period[1])
        self._keep(windows)

    def _period(self, at: datetime) -> tuple[datetime, datetime]:
        return period_around(at, duration("every", self.every), self.zone)

    def _open(self) -> dict[tuple[datetime, datetime], tuple[int, Any]]:
        return {(start, end): (empty, totals) for start, end, empty, totals in self.kept.get([])}

    def _keep(self, windows: Mapping[tuple[datetime, datetime], tuple[int, Any]]) -> None:
        if windows:
            self.kept.set([(*period, *windows[period]) for period in sorted(windows)])
        else:
            self.kept.clear()


def _faults_of_zone(name: str, zone: object, every: timedelta) -> Iterator[Fault]:
    try:
        ZoneInfo(str(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield Fault(f"there is no zone {zone!r}", name, expected="one such as `Europe/Berlin`")
    if every % timedelta(days=1):
        yield Fault(
            f"a zone, and periods of {every}, not of whole days",
            name,
            expected="whole days, such as `1 day`",
            suggestion="Leave the zone out: other periods do not depend on it.",
        )

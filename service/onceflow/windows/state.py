"""State windows: from a record that opens one to the record that closes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

from onceflow.errors import Fault
from onceflow.processing.state import duration
from onceflow.windows.window import Kept, Window, duration_faults, ttl_faults


class StateWindow(Window):
    """A row for the records from one that opens a window to the next that closes it.

    Both are part of it; the record that opens a window does not close it. Records before a window
    is open change nothing. `window_start` is the event time of the first record, and `window_end`
    the latest one; if the window has timed out, it is the start and `timeout`. One accumulator is
    kept for each key with an open window.

    Attributes:
        timeout: a window that is not closed before this time has passed is closed then. Left out:
            never, and the key is kept until then.
    """

    timeout: ClassVar[str | None] = None
    kept = Kept("first timestamp, last timestamp, totals {totals}")

    def open(self, record: Any) -> bool:
        """Whether a record opens a window. Called while none is open."""
        raise NotImplementedError

    def close(self, record: Any) -> bool:
        """Whether a record closes the window. Called while one is open."""
        raise NotImplementedError

    @classmethod
    def faults(cls) -> Iterator[Fault]:
        """Both conditions and the time-out as well."""
        yield from super().faults()
        for name in ("open", "close"):
            if getattr(cls, name) is getattr(StateWindow, name):
                yield Fault(f"{cls.__name__} has no {name}", expected=f"def {name}(self, record)")
        yield from ttl_faults(cls, "what is kept ends with the window; see `timeout`")
        if cls.timeout is not None:
            yield from duration_faults(cls, "timeout")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        """Open, add and close."""
        together = self.together()
        for record in records:
            yield from self._timed_out(key)
            window = self.kept.get()
            if window is None and not self.open(record):
                continue
            is_closed = window is not None and self.close(record)
            first, last, totals = window or (self.now, self.now, together.zero())
            last = max(last, self.now)
            totals = together.add(totals, together.value(record))
            if is_closed:
                yield self.row(key, first, last, totals)
                self._forget()
                continue
            self.kept.set((first, last, totals))
            self._set_timer()

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        """Close the window that has timed out."""
        yield from self._timed_out(key)
        self._set_timer()

    def _timed_out(self, key: Any) -> Iterator[Any]:
        window, end = self.kept.get(), self._end()
        if end is not None and end <= self.now:
            yield self.row(key, window[0], end, window[2])
            self._forget()

    def _set_timer(self) -> None:
        """Each time, because the timer that is set may be of an earlier `timeout` of the class."""
        end = self._end()
        if end is not None:
            self.timers.at(end, "timeout")

    def _end(self) -> datetime | None:
        """When the open window times out."""
        window = self.kept.get()
        if window is None or self.timeout is None:
            return None
        first: datetime = window[0]
        return first + duration("timeout", self.timeout)

    def _forget(self) -> None:
        self.kept.clear()
        self.timers.cancel("timeout")

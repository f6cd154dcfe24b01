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
            if self.timeout is not None and window is None:
                self.timers.at(first + duration("timeout", self.timeout), "timeout")

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        """Close the window that has timed out."""
        return self._timed_out(key)

    def _timed_out(self, key: Any) -> Iterator[Any]:
        window = self.kept.get()
        if window is not None and self.timeout is not None:
            first, _, totals = window
            end = first + duration("timeout", self.timeout)
            if end <= self.now:
                yield self.row(key, first, end, totals)
                self._forget()

    def _forget(self) -> None:
        self.kept.clear()
        self.timers.cancel("timeout")

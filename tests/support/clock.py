"""Time that stands still until a test moves it."""

from __future__ import annotations

from onceflow.clock import Clock


class ManualClock(Clock):
    """A Clock whose `sleep` returns at once and moves it on by as much."""

    def __init__(self, unix_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = unix_ms
        self._passed_s = 0.0

    def monotonic_s(self) -> float:
        """Seconds that were slept so far."""
        return self._passed_s

    def unix_ms(self) -> int:
        """The start that was given, and as much later as was slept."""
        return self._start_ms + round(self._passed_s * 1000)

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self._passed_s += max(0.0, seconds)

    def set_by(self, seconds: float) -> None:
        """Set the wall clock as a person would; the monotonic one goes on as before."""
        self._start_ms += round(seconds * 1000)

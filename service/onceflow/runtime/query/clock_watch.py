"""Notices, while a query runs, that the machine's wall clock was set back."""

from __future__ import annotations

from dataclasses import dataclass, field

from onceflow.clock import Clock
from onceflow.errors import RetriableError

LARGEST_STEP_BACK_S = 5.0
"""Smaller steps delay one batch by as much. Clocks that are slewed, not set, never get here."""


@dataclass
class ClockWatch:
    """Compares the wall clock with the monotonic one at every call.

    Spark's trigger (`ProcessingTimeExecutor`) and librdkafka's conditions wait for an instant of
    the wall clock: set back by an hour, they wait for an hour. A new process waits for nothing.
    """

    clock: Clock
    _ahead_ms: float = field(init=False)

    def __post_init__(self) -> None:
        self._ahead_ms = self._look()

    def __call__(self) -> None:
        """Look.

        Raises:
            RetriableError: it was set back since the last call. The running batch may be committed
                or not; the next start knows.
        """
        before_ms, self._ahead_ms = self._ahead_ms, self._look()
        back_s = (before_ms - self._ahead_ms) / 1000
        if back_s > LARGEST_STEP_BACK_S:
            raise RetriableError(
                "the wall clock of this machine was set back",
                expected=f"at most {LARGEST_STEP_BACK_S:g} s at once",
                found=f"{back_s:.0f} s",
                then="ending, because the next batch would wait for as long; start again",
            )

    def _look(self) -> float:
        return self.clock.unix_ms() - self.clock.monotonic_s() * 1000

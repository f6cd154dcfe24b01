"""The only code that reads time or sleeps. Everything else is handed a Clock or a Deadline."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from onceflow.errors import DeadlineError


class Clock(Protocol):
    """A source of time that a test can replace."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes backwards."""

    def unix_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, by this machine's clock."""

    def sleep(self, seconds: float) -> None:
        """Wait. `seconds` below zero counts as zero."""

    def within(self, seconds: float) -> Deadline:
        """Start a budget of `seconds` now."""
        return Deadline(self, self.monotonic_s() + seconds, seconds)


class SystemClock(Clock):
    """The machine's own clock."""

    def monotonic_s(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def unix_ms(self) -> int:
        """Milliseconds of `time.time`."""
        return int(time.time() * 1000)

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(max(0.0, seconds))


@dataclass(frozen=True)
class Deadline:
    """One budget of time, shared by every step of an operation.

    Args:
        clock: measures the budget.
        at_s: the end of the budget on that clock's monotonic scale.
        budget_s: the whole budget, for messages.
    """

    clock: Clock
    at_s: float
    budget_s: float

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self.clock.monotonic_s() >= self.at_s

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at_s - self.clock.monotonic_s())

    def at_most_s(self, seconds: float) -> float:
        """The smaller of `seconds` and what is left: the time-out for one step."""
        return min(seconds, self.remaining_s())

    def check(self, what: str, *, subject: str = "") -> None:
        """Go on only if time is left.

        Raises:
            DeadlineError: the budget is used up.
        """
        if self.is_over:
            expected = f"an answer within {self.budget_s:g} s"
            raise DeadlineError(what, subject=subject, expected=expected)

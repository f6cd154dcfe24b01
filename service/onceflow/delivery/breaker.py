"""Decides how long to leave a failing target alone. Pure: no clock, no target."""

from __future__ import annotations

from random import Random

from onceflow.delivery.model import Retry
from onceflow.serve.backoff import Backoff


class Breaker:
    """Open from a failure until a call succeeds; while it is open, only probes reach the target."""

    def __init__(self, retry: Retry, random: Random) -> None:
        self._attempts = retry.attempts
        self._backoff = Backoff(retry, random)

    @property
    def failures(self) -> int:
        """Failures in a row, of calls and of probes."""
        return self._backoff.failures

    @property
    def is_open(self) -> bool:
        """Whether the last call failed."""
        return self.failures > 0

    def fail(self) -> float | None:
        """Count a failure.

        Returns:
            Seconds until the next probe; None if the attempts are used up.
        """
        delay_s = self._backoff.fail()
        is_over = self._attempts is not None and self.failures > self._attempts
        return None if is_over else delay_s

    def succeed(self) -> None:
        """Close: the target has answered a call."""
        self._backoff.reset()

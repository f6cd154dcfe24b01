"""Decides how long to leave a failing target alone. Pure: no clock, no target."""

from __future__ import annotations

from random import Random

from onceflow.delivery.model import Retry


class Breaker:
    """Open from a failure until a call succeeds; while it is open, only probes reach the target.

    Attributes:
        failures: in a row, of calls and of probes.
    """

    def __init__(self, retry: Retry, random: Random) -> None:
        self._retry = retry
        self._random = random
        self._delay_ms: float = retry.delay_ms
        self.failures = 0

    @property
    def is_open(self) -> bool:
        """Whether the last call failed."""
        return self.failures > 0

    def fail(self) -> float | None:
        """Count a failure.

        Returns:
            Seconds until the next probe; None if the attempts are used up.
        """
        retry = self._retry
        self.failures += 1
        if retry.attempts is not None and self.failures > retry.attempts:
            return None
        delay_ms = self._delay_ms
        self._delay_ms = min(delay_ms * retry.multiplier, retry.max_delay_ms)
        return delay_ms / 1000 * (1 + self._random.uniform(-retry.jitter, retry.jitter))

    def succeed(self) -> None:
        """Close: the target has answered a call."""
        self.failures = 0
        self._delay_ms = self._retry.delay_ms

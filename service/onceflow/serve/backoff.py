"""Delays between tries: each is longer than the one before, up to a limit. Pure."""

from __future__ import annotations

from random import Random
from typing import Protocol


class Delays(Protocol):
    """The delays as a file says them."""

    @property
    def delay_ms(self) -> int:
        """The first."""

    @property
    def multiplier(self) -> float:
        """How much longer each further one is."""

    @property
    def max_delay_ms(self) -> int:
        """The limit, without jitter."""

    @property
    def jitter(self) -> float:
        """Part of a delay by which it is longer or shorter at random."""


class Backoff:
    """Counts failures in a row, and tells the delay after each.

    Attributes:
        failures: in a row.
    """

    def __init__(self, delays: Delays, random: Random) -> None:
        self._delays = delays
        self._random = random
        self.failures = 0
        self._delay_ms: float = delays.delay_ms

    def fail(self) -> float:
        """Count a failure; return the seconds until the next try."""
        delays, delay_ms = self._delays, self._delay_ms
        self.failures += 1
        self._delay_ms = min(delay_ms * delays.multiplier, delays.max_delay_ms)
        return delay_ms / 1000 * (1 + self._random.uniform(-delays.jitter, delays.jitter))

    def reset(self) -> None:
        """Count from the start again."""
        self.failures = 0
        self._delay_ms = self._delays.delay_ms

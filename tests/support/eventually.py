"""The one way in which tests wait: for a condition, never for time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from onceflow.clock import Clock, SystemClock

T = TypeVar("T")

INTERVAL_S = 0.05
MAX_HISTORY = 5
"""Distinct values that a failure shows: enough to see a trend."""


def eventually(
    probe: Callable[[], T],
    until: Callable[[T], object] = bool,
    *,
    timeout_s: float = 120.0,
    clock: Clock | None = None,
) -> T:
    """Call `probe` until `until` accepts what it returned, and return that.

    Raises:
        AssertionError: it never did; shows the last distinct values.
    """
    clock = clock or SystemClock()
    deadline = clock.within(timeout_s)
    history: deque[T] = deque(maxlen=MAX_HISTORY)
    while True:
        value = probe()
        if until(value):
            return value
        if not history or history[-1] != value:
            history.append(value)
        if deadline.is_over:
            seen = ", then ".join(repr(old) for old in history)
            raise AssertionError(f"not within {timeout_s:g} s; the probe returned {seen}")
        clock.sleep(INTERVAL_S)

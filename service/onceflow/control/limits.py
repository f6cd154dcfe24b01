"""Bounds on what one client may ask for: requests a second, failures to sign in.

Our own, because the package `limits` has windows and no token buckets, reads the wall clock by
itself, and starts a timer thread at each request.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from onceflow.clock import Clock

MAX_CLIENTS = 1_000
"""Addresses that are remembered; the one that was silent longest is forgotten first."""


@dataclass
class _Bucket:
    left: float
    at_s: float


class RateLimit:
    """A burst at once, and then so many a second, for each client.

    Not for several threads at once.
    """

    def __init__(self, burst: float, per_s: float, clock: Clock) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Whether one more would be within the bound; counts nothing."""
        return self._filled(client).left >= 1

    def count(self, client: str) -> bool:
        """Count one; returns whether it is within the bound."""
        bucket = self._filled(client)
        is_within = bucket.left >= 1
        bucket.left = max(0.0, bucket.left - 1)
        return is_within

    def wait_s(self, client: str) -> int:
        """Whole seconds until one more is allowed."""
        missing = max(0.0, 1 - self._filled(client).left)
        return int(missing / self._per_s) + 1

    def _filled(self, client: str) -> _Bucket:
        now_s = self._clock.monotonic_s()
        bucket = self._buckets.setdefault(client, _Bucket(self._burst, now_s))
        self._buckets.move_to_end(client)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        return bucket

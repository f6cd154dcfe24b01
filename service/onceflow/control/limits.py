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

    def wait_s(self, client: str) -> int:
        """Whole seconds until one more is within the bound; 0: it is now. Counts nothing."""
        left = self._filled(client).left
        return 0 if left >= 1 else int((1 - left) / self._per_s) + 1

    def count(self, client: str) -> int:
        """Count one; returns 0 if it is within the bound, else `wait_s`."""
        bucket = self._filled(client)
        is_within = bucket.left >= 1
        bucket.left = max(0.0, bucket.left - 1)
        return 0 if is_within else self.wait_s(client)

    def _filled(self, client: str) -> _Bucket:
        now_s = self._clock.monotonic_s()
        bucket = self._buckets.setdefault(client, _Bucket(self._burst, now_s))
        self._buckets.move_to_end(client)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        return bucket

"""When a pipeline that failed is started again, and when not."""

from __future__ import annotations

from random import Random

from onceflow.clock import Clock
from onceflow.errors import OnceflowError
from onceflow.pipeline.file.policies import Restart
from onceflow.serve.backoff import Backoff


class Restarts:
    """The restarts of one pipeline, counted."""

    def __init__(self, policy: Restart, clock: Clock, random: Random) -> None:
        self._policy = policy
        self._clock = clock
        self._backoff = Backoff(policy, random)
        self._running_since_s: float | None = None
        self.total = 0
        """Starts after a failure."""

    @property
    def in_a_row(self) -> int:
        """Failures since a run that lasted."""
        return self._backoff.failures

    def note_running(self) -> None:
        """Call when a run has come so far that it processes batches."""
        self._running_since_s = self._clock.monotonic_s()

    def forget(self) -> None:
        """Count from the start again: an operator gave an order."""
        self._backoff.reset()

    def delay_after_s(self, error: BaseException) -> float | None:
        """Decide what to do about a run that failed; call once for each.

        Returns:
            Seconds to wait before the next start. None: it is not to be started again, because the
            error would be the same or there were enough attempts.
        """
        policy, since_s = self._policy, self._running_since_s
        self._running_since_s = None
        if since_s is not None:
            lasted_ms = 1000 * (self._clock.monotonic_s() - since_s)
            if lasted_ms >= policy.reset_after_ms:
                self._backoff.reset()
        is_permanent = isinstance(error, OnceflowError) and error.is_permanent
        if is_permanent or self.in_a_row >= policy.attempts:
            return None
        self.total += 1
        return self._backoff.fail()

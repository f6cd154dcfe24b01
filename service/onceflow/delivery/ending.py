"""When a delivery ends: at once, when it has caught up, or when it has drained."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, Place
from onceflow.contracts.target import Target
from onceflow.delivery.carrier import Stop
from onceflow.delivery.survey import has_record

PEEK_TIMEOUT_S = 10.0
"""For a look whether a partition has a record after a position."""


class CatchUp:
    """Tells when everything that was in the topics at some time is in the target.

    Args:
        ends: of each partition then: (first offset, next offset to be written).
    """

    def __init__(
        self, ends: Mapping[Place, tuple[int, int]], target: Target, broker: Broker, clock: Clock
    ) -> None:
        self._left = dict(ends)
        self._target = target
        self._broker = broker
        self._clock = clock

    def is_done(self, *, is_idle: bool) -> bool:
        """Look at the positions in the target, whichever instance wrote them.

        Args:
            is_idle: whether nothing comes. Only then it is worth a look into the topic: there may
                be no record before an end.
        """
        marks = self._target.positions()
        for place, (start, end) in [*self._left.items()]:
            mark = marks.get(place)
            at = max(start, mark.offset) if mark else start
            if at < end and (not is_idle or self._has_record(place, at, end)):
                return False
            del self._left[place]
        return True

    def _has_record(self, place: Place, at: int, end: int) -> bool:
        return has_record(self._broker, place, (at, end), self._clock.within(PEEK_TIMEOUT_S))


class Drain:
    """Lets a delivery that was told to stop deliver what was in the topics by then.

    Args:
        stop: set when the delivery is to stop.
        within_s: after which it stops anyway.
        catch_up: begins to look for the ends as they are now.
    """

    def __init__(
        self, stop: Stop, within_s: float, catch_up: Callable[[], CatchUp], clock: Clock
    ) -> None:
        self._stop = stop
        self._within_s = within_s
        self._catch_up = catch_up
        self._clock = clock
        self._until: Deadline | None = None
        self._found: CatchUp | None = None

    def is_set(self) -> bool:
        """Whether the time for the drain is over."""
        if self._until is None and self._stop.is_set():
            self._until = self._clock.within(self._within_s)
        return self._until is not None and self._until.is_over

    def is_finished(self, *, is_idle: bool) -> bool:
        """Whether everything is delivered that was there when it was told to stop."""
        if not self._stop.is_set():
            return False
        if self._found is None:
            self._found = self._catch_up()
        return self._found.is_done(is_idle=is_idle)

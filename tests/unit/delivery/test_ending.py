"""When a delivery that was told to stop ends."""

from __future__ import annotations

from threading import Event
from typing import Any

from onceflow.delivery.ending import Drain
from tests.support.clock import ManualClock


class Ends:
    """Counts how often the ends were looked up; done when told."""

    def __init__(self) -> None:
        self.looked_up = 0
        self.done = False

    def __call__(self) -> Any:
        self.looked_up += 1
        return self

    def is_done(self, *, is_idle: bool) -> bool:
        return self.done


def test_a_drain_ends_when_everything_is_delivered_that_was_there_at_the_stop() -> None:
    clock, stop, ends = ManualClock(), Event(), Ends()
    drain = Drain(stop, 30, ends, clock)
    ends.done = True
    assert (drain.is_set(), drain.is_finished(is_idle=True), ends.looked_up) == (False, False, 0)
    stop.set()
    ends.done = False
    assert (drain.is_set(), drain.is_finished(is_idle=True)) == (False, False)
    ends.done = True
    assert drain.is_finished(is_idle=True)
    assert ends.looked_up == 1


def test_a_drain_ends_when_its_time_is_over() -> None:
    clock, stop = ManualClock(), Event()
    drain = Drain(stop, 30, Ends(), clock)
    clock.sleep(100)
    assert not drain.is_set()
    stop.set()
    assert not drain.is_set()
    clock.sleep(29)
    assert not drain.is_set()
    clock.sleep(2)
    assert drain.is_set()

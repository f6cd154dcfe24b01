"""A wall clock that was set back is noticed while a query runs."""

from __future__ import annotations

import pytest

from onceflow.errors import RetriableError
from onceflow.runtime.query.clock_watch import LARGEST_STEP_BACK_S, ClockWatch
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watch(clock: ManualClock) -> ClockWatch:
    made = ClockWatch(clock)
    clock.sleep(0.2)
    return made


@pytest.mark.parametrize("step_s", [3_600.0, 1.0, -LARGEST_STEP_BACK_S])
def test_steps_that_keep_no_batch_waiting_end_nothing(
    clock: ManualClock, watch: ClockWatch, step_s: float
) -> None:
    clock.set_by(step_s)
    watch()


def test_a_step_back_asks_for_a_new_start(clock: ManualClock, watch: ClockWatch) -> None:
    clock.set_by(-3_600)
    with pytest.raises(RetriableError, match=r"set back.*3600 s.*start again"):
        watch()


def test_many_small_steps_end_nothing(clock: ManualClock, watch: ClockWatch) -> None:
    for _ in range(10):
        clock.set_by(-LARGEST_STEP_BACK_S / 2)
        watch()

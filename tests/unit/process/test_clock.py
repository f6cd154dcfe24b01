"""One budget of time is shared by all steps of an operation."""

from __future__ import annotations

import pytest

from onceflow.clock import SystemClock
from onceflow.errors import DeadlineError
from tests.support.clock import ManualClock


def test_the_system_clock_goes_forward_by_what_was_slept() -> None:
    clock = SystemClock()
    before_s, before_ms = clock.monotonic_s(), clock.unix_ms()

    clock.sleep(0.01)

    assert clock.monotonic_s() - before_s >= 0.01
    assert clock.unix_ms() - before_ms >= 9
    assert before_ms > 1_700_000_000_000


def test_sleeping_less_than_nothing_is_no_error() -> None:
    clock = SystemClock()

    clock.sleep(-1)

    assert clock.monotonic_s() > 0


def test_steps_use_up_one_budget() -> None:
    clock = ManualClock()
    deadline = clock.within(10)

    assert deadline.at_most_s(4) == 4
    clock.sleep(7)

    assert deadline.remaining_s() == 3
    assert deadline.at_most_s(4) == 3
    assert not deadline.is_over


def test_a_deadline_is_over_exactly_when_nothing_remains() -> None:
    clock = ManualClock()
    deadline = clock.within(10)
    clock.sleep(9.5)
    deadline.check("read of the ledger")

    for seconds in (0.5, 100):
        clock.sleep(seconds)

        assert deadline.is_over
        assert deadline.remaining_s() == deadline.at_most_s(5) == 0
        with pytest.raises(DeadlineError, match=r"read of the ledger: owner; .* within 10 s"):
            deadline.check("read of the ledger", subject="owner")

"""The parts of an incarnation that need no broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow_connectors.kafka.sink.incarnation import RETRY_PAUSE_S, settle
from tests.support.clock import ManualClock

PASSING = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)
FINAL = KafkaError(KafkaError._STATE)


class Call:
    """Fails with each of the errors in turn, then succeeds. Remembers its time-outs."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.timeouts_s: list[float] = []

    def __call__(self, timeout_s: float) -> None:
        self.timeouts_s.append(timeout_s)
        if self.errors:
            raise KafkaException(self.errors.pop(0))


def test_a_call_is_resumed_after_passing_errors_with_what_is_left_of_the_budget() -> None:
    call = Call(PASSING, PASSING)
    assert settle(call, ManualClock().within(1.0)) is None
    assert call.timeouts_s == pytest.approx([1.0, 1.0 - RETRY_PAUSE_S, 1.0 - 2 * RETRY_PAUSE_S])


def test_any_other_error_ends_it_at_once() -> None:
    call = Call(PASSING, FINAL, PASSING)
    assert settle(call, ManualClock().within(1.0)) == FINAL
    assert len(call.timeouts_s) == 2


def test_the_budget_ends_it_with_the_last_error() -> None:
    call = Call(*[PASSING] * 1000)
    assert settle(call, ManualClock().within(1.0)) == PASSING
    assert len(call.timeouts_s) == pytest.approx(1.0 / RETRY_PAUSE_S, abs=2)


def test_a_fatal_error_inside_a_system_error_is_found() -> None:
    def call(timeout_s: float) -> None:
        raise SystemError from KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    error = settle(call, ManualClock().within(1.0))
    assert error is not None
    assert error.code() == KafkaError._FENCED

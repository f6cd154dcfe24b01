"""The last hour of a delivery, and where its run stands: as its page shows them."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.delivery.history import CarriageHistory, Wait
from onceflow.serve.hour import INTERVAL_S
from tests.support.clock import ManualClock


class Told:
    """A history, and what it has heard."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.history = CarriageHistory(self.clock)

    def batch(self, records: int, seconds: float = 0.0, rejected: int = 0) -> None:
        facts = {"records": records, "rejected": rejected, "dropped": 0, "repeats": 0}
        self.history("batch", **facts, seconds=seconds)

    def progress(self, lag: int | None, lag_s: float | None = 0.0) -> None:
        self.history("progress", lag=lag, lags={}, lag_s=lag_s, records_per_second=7.0)

    def marks(self) -> list[str]:
        return [mark["what"] for mark in self.history.fields()["marks"]]


@pytest.fixture
def told() -> Told:
    told = Told()
    told.history("delivering", delivery="d")
    return told


def test_a_batch_counts_over_the_time_that_it_took(told: Told) -> None:
    told.clock.sleep(2 * INTERVAL_S)
    told.batch(100, seconds=2.0 * INTERVAL_S, rejected=10)
    told.clock.sleep(INTERVAL_S)
    fields = told.history.fields()
    assert fields["written_per_s"][:2] == [10.0, 10.0]
    assert fields["rejected_per_s"][:2] == [1.0, 1.0]
    assert fields["batch_ms"][-1] == 10_000
    assert told.history.counts == {"written": 100, "rejected": 10, "dropped": 0}


def test_figures_are_those_of_the_time_since_the_look_before(told: Told) -> None:
    """A run looks every 15 seconds: no interval between two looks is empty."""
    told.clock.sleep(3 * INTERVAL_S)
    told.progress(40, 2.5)
    told.clock.sleep(INTERVAL_S)
    fields = told.history.fields()
    assert fields["lag"] == [40.0] * 4
    assert fields["lag_s"] == [2.5] * 4
    assert fields["written_per_s"] == [0.0] * 4
    assert told.history.figures["records_per_second"] == 7.0


def test_what_cannot_be_seen_is_unknown(told: Told) -> None:
    told.clock.sleep(INTERVAL_S)
    told.progress(None, None)
    told.clock.sleep(INTERVAL_S)
    assert told.history.fields()["lag"] == [None, None]


def test_it_tells_what_is_waited_for_until_it_is_over(told: Told) -> None:
    for failures in (1, 2):
        facts: dict[str, Any] = {"reason": "HTTP 503", "failures": failures}
        told.history("waiting", **facts, retry_in_s=1.5)
    now_ms = told.clock.unix_ms()
    assert told.history.wait == Wait("HTTP 503", 2, now_ms + 1500)
    assert told.history.counts["tries_failed"] == 2
    told.history("resumed")
    assert told.history.wait is None
    assert told.marks() == ["started", "waiting", "resumed"]


def test_a_run_that_is_started_later_waits_for_that(told: Told) -> None:
    told.history("failed", error="RetriableError", text="the target is gone", exit_code=3)
    told.history("waiting", seconds=4.0, failures_in_a_row=3)
    assert told.history.wait == Wait("the target is gone", 3, told.clock.unix_ms() + 4_000)
    assert told.history.figures == {}
    told.history("delivering", delivery="d")
    assert told.history.wait is None

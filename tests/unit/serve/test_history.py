"""The last hour of a pipeline, as charts are drawn from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceflow.serve.history import History
from onceflow.serve.hour import INTERVAL_S, MAX_MARKS, MAX_TEXT, SLOTS
from tests.support.clock import ManualClock

NOTHING = {"read": 0, "late": 0, "rejected": 0, "written": 0, "refused": 0, "diverged": 0}


class Told:
    """A history, and what it has heard."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.history = History(self.clock)
        self.report = self.history

    def batch(self, read: int = 0, took_s: float = 0.0, **facts: Any) -> None:
        """A batch that ends now."""
        self.report(
            "batch",
            batch_id=facts.get("batch_id", 1),
            is_skipped=facts.get("is_skipped", False),
            records={**NOTHING, "read": read, **facts.get("records", {})},
            batch_timestamp_ms=self.clock.unix_ms() - round(took_s * 1000),
            event_watermark_ms=facts.get("event_watermark_ms", 0),
            newest_event_ms=facts.get("newest_event_ms"),
        )

    def idle(self) -> None:
        """Nothing waits: whatever came until now was read."""
        self.report("progress", lag=0)

    def fields(self) -> Any:
        return json.loads(json.dumps(self.history.fields(), allow_nan=False))

    def what(self) -> list[str]:
        return [mark["what"] for mark in self.fields()["marks"]]


@pytest.fixture
def told() -> Told:
    return Told()


def test_nothing_is_known_before_an_interval_is_over(told: Told) -> None:
    told.batch(read=10)
    assert told.fields()["at_ms"] == []
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [None], "the next batch has a share in it"
    told.idle()
    assert told.fields()["read_per_s"] == [2.0] == told.history.trend_per_s()


def test_batches_of_one_interval_are_one_point(told: Told) -> None:
    for read in (10, 20, 30):
        told.batch(read=read, records={"written": 5, "rejected": 1, "refused": 1})
    told.clock.sleep(INTERVAL_S)
    told.idle()
    found = told.fields()
    assert found["at_ms"] == [told.clock.unix_ms() - INTERVAL_S * 1000]
    rates = [found[f"{name}_per_s"] for name in ("read", "written", "rejected")]
    assert rates == [[60 / INTERVAL_S], [15 / INTERVAL_S], [6 / INTERVAL_S]]


def test_a_batch_is_spread_over_the_time_since_the_one_before_it(told: Told) -> None:
    told.batch(read=5)
    told.clock.sleep(4 * INTERVAL_S)
    told.batch(read=400, took_s=1)
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [21, 20, 20, 20, None]


def test_a_stop_leaves_no_interval_without_records(told: Told) -> None:
    told.clock.sleep(INTERVAL_S)
    told.batch(read=5)
    told.report("stopped")
    told.clock.sleep(INTERVAL_S)
    told.report("running")
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [1, None, None]


def test_while_nothing_waits_nothing_is_read(told: Told) -> None:
    for lag in (0, 0, 0, 7, 7):
        told.report("progress", lag=lag)
        told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [0, 0, None, None, None], "a batch may be at work"
    told.batch(read=300)
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [0, 0, 20, 20, 20, None]


def test_a_batch_that_another_run_began_counts_from_this_run_on(told: Told) -> None:
    told.clock.sleep(2 * INTERVAL_S)
    told.report("running")
    told.clock.sleep(INTERVAL_S)
    told.batch(read=50, took_s=1_000)
    told.clock.sleep(INTERVAL_S)
    found = told.fields()
    assert found["read_per_s"] == [None, None, 10, None]
    assert found["visible_ms"] == [None, None, None, 1_000_000]


def test_a_replay_counts_nothing_and_is_marked(told: Told) -> None:
    told.batch(read=10, is_skipped=True, batch_id=7)
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["read_per_s"] == [None]
    assert told.what() == ["replayed"]
    assert [*told.history.replayed] == [7]


def test_it_remembers_an_hour_and_no_more(told: Told) -> None:
    for _ in range(SLOTS + 100):
        told.report("progress", lag=5)
        told.report("failed", error="E", text="x" * 5_000)
        told.clock.sleep(INTERVAL_S)
    found = told.fields()
    assert {len(column) for name, column in found.items() if name.endswith("_per_s")} == {SLOTS - 1}
    assert found["lag"] == [5] * (SLOTS - 1)
    assert found["at_ms"][0] == told.clock.unix_ms() - (SLOTS - 1) * INTERVAL_S * 1000
    assert len(found["marks"]) == MAX_MARKS
    assert {len(mark["text"]) for mark in found["marks"]} == {MAX_TEXT}
    told.clock.sleep(2 * SLOTS * INTERVAL_S)
    found = told.fields()
    assert found["lag"] == [None] * (SLOTS - 1)
    assert found["marks"] == []


def test_after_a_long_silence_no_old_point_comes_back(told: Told) -> None:
    told.report("progress", lag=1)
    told.clock.sleep((SLOTS + 3) * INTERVAL_S)
    for lag in (2, None, 3):
        told.report("progress", lag=lag)
        told.clock.sleep(INTERVAL_S)
    assert told.fields()["lag"] == [None] * (SLOTS - 4) + [2, None, 3]


def test_a_clock_that_is_set_back_repeats_no_moment(told: Told) -> None:
    told.report("progress", lag=1)
    told.clock.sleep(INTERVAL_S)
    told.clock.set_by(-3_600)
    told.report("progress", lag=0)
    told.batch(read=10, took_s=-3_600)
    told.clock.sleep(INTERVAL_S)
    told.idle()
    found = told.fields()
    assert found["lag"] == [1, 0]
    assert found["at_ms"][1] - found["at_ms"][0] == INTERVAL_S * 1000
    assert found["read_per_s"] == [None, 2]
    assert found["visible_ms"] == [None, 0]


def test_gauges_stay_between_batches_and_end_with_the_run(told: Told) -> None:
    told.batch(event_watermark_ms=900, newest_event_ms=1_000)
    told.report("progress", state_rows=7, state_memory_bytes=70, duration_ms={"addBatch": 1})
    for event in ("progress", "stopped", "other"):
        told.clock.sleep(INTERVAL_S)
        told.report(event)
    told.clock.sleep(INTERVAL_S)
    found = told.fields()
    assert found["state_rows"] == [7, 7, None, None]
    assert found["event_watermark_ms"] == [900, 900, None, None]
    assert found["newest_event_ms"] == [1_000, 1_000, None, None]
    told.batch()
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["event_watermark_ms"][-1] is None, "0 is none"


def test_operators_are_those_of_the_newest_batch(told: Told) -> None:
    operators = [{"name": "stateStoreSave", "updated": 3}]
    told.report("progress", operators=operators, source_records={"clicks": 5})
    told.report("progress", lag=1)
    assert told.fields()["operators"] == operators
    assert told.fields()["source_records"] == {"clicks": 5}
    told.report("stopped")
    assert (told.fields()["operators"], told.fields()["source_records"]) == ([], {})


def test_phases_are_those_of_the_mean_batch(told: Told) -> None:
    for add_ms in (100, 300):
        took = {"addBatch": add_ms, "walCommit": 10, "new": 5, "triggerExecution": add_ms + 40}
        told.report("progress", duration_ms=took)
    told.clock.sleep(INTERVAL_S)
    found = told.fields()
    assert found["batches"] == [2]
    assert found["batch_ms"]["addBatch"] == [200]
    assert found["batch_ms"]["walCommit"] == [10]
    assert found["batch_ms"]["other"] == [30]


def test_it_marks_who_came_and_went(told: Told) -> None:
    told.report("owner", token=1, run_id="a")
    told.report("failed", error="FencedError", text="another instance")
    told.report("failed", error="RetriableError", text="no answer")
    told.report("taking_over", why="silence")
    told.report("owner", token=4, run_id="b")
    told.report("stopped")
    assert told.what() == ["started", "taken over", "failed", "took over", "stopped"]
    assert told.fields()["marks"][2]["text"] == "RetriableError: no answer"
    assert told.fields()["marks"][3]["text"] == "fencing token 4"


def test_the_holder_is_known_while_somebody_looks(told: Told) -> None:
    told.history.note_holder("clicks")
    told.clock.sleep(INTERVAL_S)
    told.report("progress")
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["watermark_holder"] == ["clicks", None]
    told.history.only_holder = "orders"
    told.report("progress")
    told.clock.sleep(INTERVAL_S)
    assert told.fields()["watermark_holder"] == ["clicks", None, "orders"]

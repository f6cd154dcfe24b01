"""Prometheus scrapes what the pipelines reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from onceflow.protocol.ledger import RecordCounts
from onceflow.serve.fleet import Desired, Observed, Status
from onceflow.serve.metrics import Metrics
from tests.support.clock import ManualClock
from tests.support.entries import head

ORDER = ["pipeline", "version", "state", "topic", "partition", "outcome", "phase", "le", "error"]


class Watched:
    """Metrics of two pipelines, and what a scrape of them shows."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.statuses = [
            Status("views", Desired.RUNNING, Observed.RUNNING, 2, None),
            Status("clicks", Desired.STOPPED, Observed.STOPPED, 0, None),
        ]
        self.metrics = Metrics(
            self.clock, lambda: self.statuses, {"version": "1.2"}, lambda: {"views": 123}
        )
        self.report = self.metrics.report_of("views")
        self.observer = self.metrics.observer_of("views")

    def scrape(self) -> dict[tuple[str, ...], float]:
        """Each sample by its name and the values of its labels, the pipeline first."""
        text = generate_latest(self.metrics.registry).decode()
        return {
            (sample.name.removeprefix("onceflow_"), *in_order(sample.labels)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def in_order(labels: dict[str, str]) -> list[str]:
    """The text format has them by their names."""
    return [labels[name] for name in sorted(labels, key=lambda n: (ORDER.index(n), n))]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_states_are_one_hot(watched: Watched) -> None:
    found = watched.scrape()
    for name, observed in (("views", "running"), ("clicks", "stopped")):
        assert found["pipeline_state", name, observed] == 1
        assert sum(found["pipeline_state", name, each] for each in Observed) == 1
    assert found["pipeline_desired_running", "views"] == 1
    assert found["pipeline_desired_running", "clicks"] == 0
    assert found["restarts_total", "views"] == 2
    assert found["checkpoint_free_bytes", "views"] == 123
    assert found["build_info", "1.2"] == 1


def test_the_account_is_that_of_the_ledger(watched: Watched) -> None:
    totals = RecordCounts(100, 7, 6, 90, 5, 4, 3)
    newest = replace(head(4, 10, 20), totals=totals, newest_event_ms=5_500)
    watched.observer.position(newest)
    found = watched.scrape()
    names = ("read", "late", "rejected", "written", "refused", "diverged", "duplicates")
    assert [found[f"records_{name}_total", "views"] for name in names] == [100, 7, 6, 90, 5, 4, 3]
    assert found["newest_event_timestamp_seconds", "views"] == 5.5
    for partition, (_, last) in newest.sink.sequence.items():
        assert found["sequence_last", "views", newest.sink.topic, str(partition)] == last
    assert found["batch_last", "views"] == newest.batch.batch_id
    assert found["generation", "views"] == newest.generation
    assert found["fencing_token", "views"] == newest.token


@pytest.mark.parametrize(("at_ms", "seconds"), [(0, None), (1_500, 1.5)])
def test_an_event_watermark_that_does_not_exist_is_not_1970(
    watched: Watched, at_ms: int, seconds: float | None
) -> None:
    newest = head(4, 10, 20)
    watched.observer.position(replace(newest, plan=replace(newest.plan, event_watermark_ms=at_ms)))
    assert watched.scrape().get(("event_watermark_timestamp_seconds", "views")) == seconds


def test_batches_and_their_phases(watched: Watched) -> None:
    watched.report("batch", is_skipped=True)
    watched.report("batch", is_skipped=False)
    watched.report("progress", duration_ms={"addBatch": 300, "walCommit": 4})
    found = watched.scrape()
    assert found["batches_total", "views", "committed"] == 1
    assert found["batches_total", "views", "skipped"] == 1
    assert found["batch_last_success_timestamp_seconds", "views"] == watched.clock.unix_ms() / 1000
    assert found["batch_duration_seconds_sum", "views", "addBatch"] == 0.3
    assert found["batch_duration_seconds_count", "views", "walCommit"] == 1


def test_transactions_and_failures(watched: Watched) -> None:
    for outcome in ("committed", "committed", "aborted"):
        watched.observer.transaction(outcome, 0.25)
    for error in ("FencedError", "RetriableError", "RetriableError"):
        watched.report("failed", error=error, text="", exit_code=1)
    found = watched.scrape()
    assert found["transactions_total", "views", "committed"] == 2
    assert found["transactions_total", "views", "aborted"] == 1
    assert found["transaction_commit_seconds_sum", "views"] == 0.75
    assert found["failures_total", "views", "RetriableError"] == 2
    assert found["fenced_total", "views"] == 1


def test_lag_is_that_of_the_newest_look(watched: Watched) -> None:
    watched.observer.lag({("in", 0): 5, ("gone", 1): 7})
    watched.observer.lag({("in", 0): 6})
    found = watched.scrape()
    assert found["source_lag_records", "views", "in", "0"] == 6
    assert ("source_lag_records", "views", "gone", "1") not in found


def test_what_is_known_no_more_is_not_shown(watched: Watched) -> None:
    watched.report("progress", state_rows=5, state_memory_bytes=6, retention_left_s=7.0)
    found = watched.scrape()
    assert found["state_rows", "views"] == 5
    assert found["state_bytes", "views"] == 6
    assert found["retention_left_seconds", "views"] == 7
    watched.report("progress", retention_left_s=None, lag=3)
    found = watched.scrape()
    assert found["state_rows", "views"] == 5
    assert ("retention_left_seconds", "views") not in found


def test_names_follow_prometheus(watched: Watched) -> None:
    watched.observer.position(head(4, 10, 20))
    watched.report("progress", duration_ms={"addBatch": 300})
    families: Sequence[Any] = [*watched.metrics.registry.collect()]
    for family in families:
        assert family.name.startswith("onceflow_")
        assert family.documentation.endswith("."), family.name
        is_time = "duration" in family.name or "timestamp" in family.name
        assert not is_time or family.name.endswith("_seconds"), family.name

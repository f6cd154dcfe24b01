"""Metrics of deliveries: what is scraped after what was reported."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from onceflow.delivery.metrics import DeliveryMetrics
from onceflow.serve.fleet import Desired, Observed, Status

NAME = "views-to-postgres"


def scraped(metrics: DeliveryMetrics) -> dict[str, float]:
    """Values by name and further labels."""
    text = generate_latest(metrics.registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [v for k, v in sorted(sample.labels.items()) if k != "delivery"]
            found[" ".join([sample.name.removeprefix("onceflow_delivery_"), *labels])] = (
                sample.value
            )
    return found


def new_metrics() -> DeliveryMetrics:
    status = Status(NAME, Desired.RUNNING, Observed.WAITING, 3, None)
    return DeliveryMetrics(lambda: [status], {"version": "1"})


def test_records_are_counted_over_the_runs_of_a_process() -> None:
    metrics = new_metrics()
    tell = metrics.report_of(NAME)
    for repeats in (5, 9):
        tell("batch", records=100, rejected=1, dropped=3, repeats=repeats, seconds=0.2)
    tell("failed", error="RetriableError", text="down", exit_code=3)
    tell("delivering", to="PostgreSQL", guarantee="exactly once")
    # Repeats are counted by a run, from zero.
    tell("batch", records=10, rejected=0, dropped=0, repeats=2, seconds=0.1)
    found = scraped(metrics)
    assert found["records_total"] == 210
    assert found["rejected_total"] == 2
    assert (found["repeats_total"], found["dropped_total"]) == (11, 6)
    assert found["batches_total"] == 3
    assert found["batch_duration_seconds_count"] == 3
    assert found["failures_total RetriableError"] == 1
    assert (found["state waiting"], found["state running"]) == (1, 0)
    assert (found["desired_running"], found["restarts_total"]) == (1, 3)


def test_a_target_is_up_while_it_answers() -> None:
    metrics = new_metrics()
    tell = metrics.report_of(NAME)
    tell("delivering", to="PostgreSQL", guarantee="exactly once")
    assert "target_up" not in scraped(metrics)
    tell("waiting", reason="no answer", failures=1, retry_in_s=1.0)
    tell("waiting", reason="no answer", failures=2, retry_in_s=2.0)
    found = scraped(metrics)
    assert (found["target_up"], found["tries_failed_total"]) == (0, 2)
    # Of the fleet, which waits to start the run again.
    tell("waiting", seconds=5, failures_in_a_row=1)
    assert scraped(metrics)["tries_failed_total"] == 2
    tell("resumed")
    assert scraped(metrics)["target_up"] == 1


def test_lag_is_told_until_it_is_no_longer_known() -> None:
    metrics = new_metrics()
    tell = metrics.report_of(NAME)
    tell("progress", lag=7, lags={"views-0": 7, "views-1": 0}, lag_s=3.5, retention_left_s=60.0)
    found = scraped(metrics)
    assert (found["lag_records views-0"], found["lag_records views-1"]) == (7, 0)
    assert (found["lag_seconds"], found["retention_left_seconds"]) == (3.5, 60)
    tell("progress", lag=None, lags={}, lag_s=None, records_per_second=None)
    assert not [name for name in scraped(metrics) if name.startswith(("lag", "retention"))]

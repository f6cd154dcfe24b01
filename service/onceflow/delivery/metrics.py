"""The metrics of deliveries that Prometheus scrapes, from what their runs report.

Counts are of this process, and start at zero with it, as Prometheus expects of counters.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from onceflow.contracts.observer import Report
from onceflow.serve.fleet import Status
from onceflow.serve.metrics import BUCKETS_S, status_metrics

PREFIX = "onceflow_delivery_"
_COUNTS: Mapping[str, str] = {
    "records": "Records that were delivered.",
    "rejected": "Records that were rejected.",
    "dropped": "Records that had waited for too long.",
    "repeats": "Records that were discarded because they had been delivered.",
    "batches": "Batches that were delivered.",
    "tries_failed": "Calls of the target that failed, and were or will be made again.",
}
_GAUGES: Mapping[str, tuple[str, str]] = {
    "lag_s": ("lag_seconds", "Age of the oldest record that waits."),
    "retention_left_s": (
        "retention_left_seconds",
        "Predicted time until Kafka deletes undelivered records.",
    ),
}
"""Fact of a `progress` event -> name and help text of the metric."""


@dataclass
class _Newest:
    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    lags: Mapping[str, int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    repeats_of_run: int = 0
    is_up: bool | None = None
    """Whether the target answered last; None if it was not asked yet."""


class DeliveryMetrics(Collector):
    """The metrics of a process. Scrapes and deliveries use it at the same time."""

    def __init__(
        self, statuses: Callable[[], Sequence[Status]], versions: Mapping[str, str]
    ) -> None:
        self._statuses = statuses
        self._versions = versions
        self._newest: defaultdict[str, _Newest] = defaultdict(_Newest)
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            f"{PREFIX}batch_duration_seconds",
            "Time to write a batch to the target, with the tries that failed.",
            ("delivery",),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

    def report_of(self, delivery: str) -> Report:
        """Make the report for runs of this delivery."""
        return partial(self._hear, delivery)

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield every metric for one scrape."""
        with self._lock:
            yield InfoMetricFamily(
                "onceflow_build", "Versions of this process.", value=dict(self._versions)
            )
            yield from status_metrics(self._statuses(), _gauge, _counter)
            yield from self._counts()
            yield from self._figures()

    def _hear(self, delivery: str, event: str, /, **facts: Any) -> None:
        with self._lock:
            newest = self._newest[delivery]
            if event == "delivering":
                newest.repeats_of_run = 0
            elif event == "batch":
                newest.is_up = True
                newest.counts["batches"] += 1
                newest.counts["records"] += facts["records"]
                newest.counts["rejected"] += facts["rejected"]
                newest.counts["dropped"] += facts["dropped"]
                newest.counts["repeats"] += facts["repeats"] - newest.repeats_of_run
                newest.repeats_of_run = facts["repeats"]
                self._seconds.labels(delivery).observe(facts["seconds"])
            elif event == "waiting" and "reason" in facts:
                newest.is_up = False
                newest.counts["tries_failed"] += 1
            elif event == "resumed":
                newest.is_up = True
            elif event == "failed":
                newest.failures[facts["error"]] += 1
            elif event == "progress":
                newest.lags = facts["lags"]
                told = {name: facts.get(name) for name in _GAUGES}
                newest.figures = {k: value for k, value in told.items() if value is not None}

    def _counts(self) -> Iterator[Metric]:
        for name, what in _COUNTS.items():
            count = _counter(name, what)
            for delivery, newest in self._newest.items():
                count.add_metric([delivery], newest.counts[name])
            yield count
        failures = _counter("failures", "Runs that failed, by the class of their error.", "error")
        for delivery, newest in self._newest.items():
            for error, number in newest.failures.items():
                failures.add_metric([delivery, error], number)
        yield failures

    def _figures(self) -> Iterator[Metric]:
        up = _gauge("target_up", "1 if the target answered last, 0 if it failed.")
        lag = _gauge("lag_records", "Records that wait.", "partition")
        figures = {fact: _gauge(name, what) for fact, (name, what) in _GAUGES.items()}
        for delivery, newest in self._newest.items():
            if newest.is_up is not None:
                up.add_metric([delivery], float(newest.is_up))
            for partition, records in sorted(newest.lags.items()):
                lag.add_metric([delivery, partition], records)
            for fact, value in newest.figures.items():
                figures[fact].add_metric([delivery], value)
        yield from (up, lag, *figures.values())


def _gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, what, labels=("delivery", *labels))


def _counter(name: str, what: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, what, labels=("delivery", *labels))

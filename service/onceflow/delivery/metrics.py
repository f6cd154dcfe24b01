"""The metrics of deliveries, or enrichments, that Prometheus scrapes, from what runs report.

Counts are of this process, and start at zero with it, as Prometheus expects of counters.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeAlias

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from onceflow.contracts.observer import Report
from onceflow.serve.fleet import Status
from onceflow.serve.metrics import BUCKETS_S, status_metrics

_GAUGES: Mapping[str, tuple[str, str]] = {
    "lag_s": ("lag_seconds", "Age of the oldest record that waits."),
    "retention_left_s": (
        "retention_left_seconds",
        "Predicted time until Kafka deletes records that wait.",
    ),
}
"""Fact of a `progress` event -> name and help text of the metric."""


Statuses: TypeAlias = Callable[[], Sequence[Status]]


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
    """The metrics of a process. Scrapes and runs use it at the same time.

    Attributes:
        kind: of the files; begins the name of each metric, and is the label that names the file.
        counts: name and help text of each counter.
    """

    kind: ClassVar[str] = "delivery"
    counts: ClassVar[Mapping[str, str]] = {
        "records": "Records that were written.",
        "rejected": "Records that were rejected.",
        "dropped": "Records that had waited for too long.",
        "repeats": "Records that were discarded because they had been written.",
        "batches": "Batches that were written.",
        "tries_failed": "Calls of the target that failed, and were or will be made again.",
    }

    def __init__(self, statuses: Statuses, versions: Mapping[str, str]) -> None:
        self._statuses = statuses
        self._versions = versions
        self._newest: defaultdict[str, _Newest] = defaultdict(_Newest)
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            f"onceflow_{self.kind}_batch_duration_seconds",
            "Time to write a batch to the target, with the tries that failed.",
            (self.kind,),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

    def report_of(self, name: str) -> Report:
        """Make the report for runs of the file of this name."""
        return partial(self._hear, name)

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield every metric for one scrape."""
        with self._lock:
            yield InfoMetricFamily(
                "onceflow_build", "Versions of this process.", value=dict(self._versions)
            )
            yield from status_metrics(self._statuses(), self._gauge, self._counter)
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
        for name, what in self.counts.items():
            count = self._counter(name, what)
            for delivery, newest in self._newest.items():
                count.add_metric([delivery], newest.counts[name])
            yield count
        failures = self._counter(
            "failures", "Runs that failed, by the class of their error.", "error"
        )
        for delivery, newest in self._newest.items():
            for error, number in newest.failures.items():
                failures.add_metric([delivery, error], number)
        yield failures

    def _figures(self) -> Iterator[Metric]:
        up = self._gauge("target_up", "1 if the target answered last, 0 if it failed.")
        lag = self._gauge("lag_records", "Records that wait.", "partition")
        figures = {fact: self._gauge(name, what) for fact, (name, what) in _GAUGES.items()}
        for delivery, newest in self._newest.items():
            if newest.is_up is not None:
                up.add_metric([delivery], float(newest.is_up))
            for partition, records in sorted(newest.lags.items()):
                lag.add_metric([delivery, partition], records)
            for fact, value in newest.figures.items():
                figures[fact].add_metric([delivery], value)
        yield from (up, lag, *figures.values())

    def _gauge(self, name: str, what: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"onceflow_{self.kind}_{name}", what, labels=(self.kind, *labels))

    def _counter(self, name: str, what: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(
            f"onceflow_{self.kind}_{name}", what, labels=(self.kind, *labels)
        )

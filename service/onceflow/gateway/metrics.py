"""The metrics of gateways that Prometheus scrapes.

Counts are of this process, and start at zero with it, as Prometheus expects of counters.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from onceflow.gateway.history import Totals
from onceflow.serve.fleet import Status
from onceflow.serve.metrics import BUCKETS_S, status_metrics

PREFIX = "onceflow_gateway_"
_FIGURES: Mapping[str, str] = {
    "keys": "Keys that this instance remembers.",
    "slots": "Slots that this instance owns.",
    "unowned_slots": "Slots that no instance owns, as far as this one knows.",
    "in_flight_bytes": "Bodies of posts that wait for their answers.",
}


class GatewayMetrics(Collector):
    """The metrics of the gateway of this process. Scrapes and posts use it at the same time."""

    def __init__(
        self,
        gateway: str,
        statuses: Callable[[], Sequence[Status]],
        versions: Mapping[str, str],
    ) -> None:
        self._name = gateway
        self._statuses = statuses
        self._versions = versions
        self._posts: Counter[int] = Counter()
        self._records = 0
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.figures: Callable[[], Mapping[str, float]] = dict
        """Of the running instance; none before the first."""
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            f"{PREFIX}post_duration_seconds",
            "Time to answer a post.",
            ("gateway",),
            buckets=BUCKETS_S,
            registry=self.registry,
        ).labels(gateway)
        self.registry.register(self)

    def answered(self, status: int, records: int, seconds: float) -> None:
        """Count an answer."""
        with self._lock:
            self._posts[status] += 1
            self._records += records
        self._seconds.observe(seconds)

    def hear(self, event: str, /, **facts: Any) -> None:
        """Count failures; a report."""
        if event == "failed":
            with self._lock:
                self._failures[facts["error"]] += 1

    def totals(self) -> Totals:
        """Counts since the process began, and figures of the running instance."""
        with self._lock:
            posts, records = Counter(self._posts), self._records
        samples = (sample for metric in self._seconds.collect() for sample in metric.samples)
        took_s = sum(sample.value for sample in samples if sample.name.endswith("_sum"))
        return Totals(posts, records, took_s, self.figures())

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield every metric for one scrape."""
        yield InfoMetricFamily(
            "onceflow_build", "Versions of this process.", value=dict(self._versions)
        )
        yield from status_metrics(self._statuses(), _gauge, _counter)
        with self._lock:
            posts, records, failures = dict(self._posts), self._records, dict(self._failures)
        answers = _counter("posts", "Posts that were answered, by status.", "status")
        for status, count in sorted(posts.items()):
            answers.add_metric([self._name, str(status)], count)
        written = _counter("records", "Records that answers said are written.")
        written.add_metric([self._name], records)
        failed = _counter("failures", "Runs that failed, by the class of their error.", "error")
        for error, count in failures.items():
            failed.add_metric([self._name, error], count)
        yield from (answers, written, failed)
        found = self.figures()
        for name, what in _FIGURES.items():
            gauge = _gauge(name, what)
            if name in found:
                gauge.add_metric([self._name], found[name])
            yield gauge


def _gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, what, labels=("gateway", *labels))


def _counter(name: str, what: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, what, labels=("gateway", *labels))

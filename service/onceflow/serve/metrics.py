"""The metrics that Prometheus scrapes, for every pipeline of this process.

Counts of records come from the ledger, so they survive restarts and take-overs. What a process
counts itself, such as batches, starts at zero with it, as Prometheus expects of counters.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from onceflow.clock import Clock
from onceflow.contracts.observer import Observer, Report
from onceflow.protocol.ledger import HeadEntry
from onceflow.serve.fleet import Desired, Observed, Status

PREFIX = "onceflow_"
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ACCOUNT: Mapping[str, str] = {
    "read": "Input records that the sources delivered.",
    "late": "Input records older than the event watermark.",
    "rejected": "Input records that were rejected before the query.",
    "duplicates": "Input records left out because their key had been seen.",
    "written": "Output records.",
    "refused": "Rows of the result that the output topic did not take.",
    "diverged": "Rows that a replay computed differently from what was committed.",
}
"""Help texts of `records_*_total`, by field of `RecordCounts`."""
_FIGURES: Mapping[str, tuple[str, str]] = {
    "state_rows": ("state_rows", "Rows in all state stores, as last sampled."),
    "state_memory_bytes": ("state_bytes", "Memory used by the state stores."),
    "retention_left_s": (
        "retention_left_seconds",
        "Predicted time until Kafka deletes unread input.",
    ),
}
"""Fact of a `progress` event -> name and help text of the metric."""
_POSITIONS: Sequence[tuple[str, str, Callable[[HeadEntry], float | None]]] = (
    ("batch_last", "Newest committed batch.", lambda head: head.batch.batch_id),
    (
        "generation",
        "Generation of the pipeline: starts on a new checkpoint, from 1.",
        lambda head: head.generation,
    ),
    ("fencing_token", "Number of take-overs.", lambda head: head.token),
    (
        "event_watermark_timestamp_seconds",
        "Event watermark of the newest batch.",
        # No event watermark is 0.
        lambda head: _seconds(max(0, head.plan.event_watermark_ms) or None),
    ),
    (
        "newest_event_timestamp_seconds",
        "Newest event time that was read.",
        lambda head: _seconds(head.newest_event_ms),
    ),
)
"""Metrics that one number of the ledger gives; it may be unknown."""


@dataclass
class _Newest:
    """The newest facts of a pipeline."""

    head: HeadEntry | None = None
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    committed_at_s: float | None = None
    batches: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)


class Metrics(Collector):
    """The metrics of a process. Scrapes and pipelines use it at the same time.

    `free_bytes` tells the free space for each local checkpoint, by pipeline.
    """

    def __init__(
        self,
        clock: Clock,
        statuses: Callable[[], Sequence[Status]],
        versions: Mapping[str, str],
        free_bytes: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._clock = clock
        self._statuses = statuses
        self._versions = versions
        self._free_bytes = free_bytes
        self._newest: defaultdict[str, _Newest] = defaultdict(_Newest)
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._batch_seconds = self._histogram(
            "batch_duration_seconds", "Time of each phase of a batch, by Spark's names.", "phase"
        )
        self._commit_seconds = self._histogram(
            "transaction_commit_seconds",
            "Time until the brokers answered the end of a transaction.",
        )
        self.registry.register(self)

    def observer_of(self, pipeline: str) -> Observer:
        """Make the observer for a run of this pipeline."""
        return _Watcher(self, pipeline)

    def report_of(self, pipeline: str) -> Report:
        """Make the report for a run of this pipeline."""
        return partial(self._hear, pipeline)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric for one scrape."""
        with self._lock:
            yield InfoMetricFamily(
                f"{PREFIX}build", "Versions of this process.", value=dict(self._versions)
            )
            yield from status_metrics(self._statuses(), _gauge, _counter, "pipeline_")
            yield from self._ledgers()
            yield from self._counts()
            yield from self._gauges()

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not collect."""
        return iter(())

    def _histogram(self, name: str, what: str, *labels: str) -> Histogram:
        names = ("pipeline", *labels)
        return Histogram(PREFIX + name, what, names, buckets=BUCKETS_S, registry=self.registry)

    def _hear(self, pipeline: str, event: str, /, **facts: Any) -> None:
        with self.newest(pipeline) as newest:
            if event == "batch":
                newest.batches["skipped" if facts["is_skipped"] else "committed"] += 1
                newest.committed_at_s = self._clock.unix_ms() / 1000
            elif event == "failed":
                newest.failures[facts["error"]] += 1
            elif event == "progress":
                told = {fact: facts[fact] for fact in _FIGURES if fact in facts}
                # None: no longer known, such as a prediction that no longer holds.
                all_known = (newest.figures | told).items()
                newest.figures = {k: value for k, value in all_known if value is not None}
        for phase, took_ms in facts.get("duration_ms", {}).items():
            self._batch_seconds.labels(pipeline, phase).observe(took_ms / 1000)

    @contextmanager
    def newest(self, pipeline: str) -> Iterator[_Newest]:
        """Change the facts of a pipeline while no scrape reads them."""
        with self._lock:
            yield self._newest[pipeline]

    def note_commit(self, pipeline: str, seconds: float) -> None:
        """Count the time of a transaction."""
        self._commit_seconds.labels(pipeline).observe(seconds)

    def _ledgers(self) -> Iterator[Metric]:
        heads = {name: newest.head for name, newest in self._newest.items() if newest.head}
        for name, what in _ACCOUNT.items():
            account = _counter(f"records_{name}", what)
            for pipeline, head in heads.items():
                account.add_metric([pipeline], getattr(head.totals, name))
            yield account
        what = "Newest sequence in each output partition."
        sequence = _gauge("sequence_last", what, "topic", "partition")
        for pipeline, head in heads.items():
            for partition, (_, last) in sorted(head.sink.sequence.items()):
                sequence.add_metric([pipeline, head.sink.topic, str(partition)], last)
        yield sequence
        for name, what, value_of in _POSITIONS:
            position = _gauge(name, what)
            for pipeline, head in heads.items():
                if (value := value_of(head)) is not None:
                    position.add_metric([pipeline], value)
            yield position

    def _counts(self) -> Iterator[Metric]:
        batches = _counter("batches", "Batches that ended, in this process.", "outcome")
        transactions = _counter("transactions", "Transactions that ended.", "outcome")
        failures = _counter("failures", "Runs that failed, by the class of their error.", "error")
        fenced = _counter("fenced", "Runs that were replaced by a newer instance.")
        for pipeline, newest in self._newest.items():
            for family, counts in (
                (batches, newest.batches),
                (transactions, newest.transactions),
                (failures, newest.failures),
            ):
                for label, count in counts.items():
                    family.add_metric([pipeline, label], count)
            fenced.add_metric([pipeline], newest.failures["FencedError"])
        yield from (batches, transactions, failures, fenced)

    def _gauges(self) -> Iterator[Metric]:
        what = "Records that are not read and committed yet."
        lag = _gauge("source_lag_records", what, "topic", "partition")
        what = "Time of the last committed batch."
        success = _gauge("batch_last_success_timestamp_seconds", what)
        figures = {fact: _gauge(name, what) for fact, (name, what) in _FIGURES.items()}
        for pipeline, newest in self._newest.items():
            for (topic, partition), records in sorted(newest.lag.items()):
                lag.add_metric([pipeline, topic, str(partition)], records)
            if newest.committed_at_s is not None:
                success.add_metric([pipeline], newest.committed_at_s)
            for fact, value in newest.figures.items():
                figures[fact].add_metric([pipeline], value)
        free = _gauge("checkpoint_free_bytes", "Free space on the disk of a local checkpoint.")
        for pipeline, room in self._free_bytes().items():
            free.add_metric([pipeline], room)
        yield from (lag, success, *figures.values(), free)


@dataclass
class _Watcher(Observer):
    metrics: Metrics
    pipeline: str

    def position(self, head: HeadEntry) -> None:
        with self.metrics.newest(self.pipeline) as newest:
            newest.head = head

    def lag(self, records: Mapping[tuple[str, int], int]) -> None:
        with self.metrics.newest(self.pipeline) as newest:
            newest.lag = records

    def transaction(self, outcome: str, seconds: float) -> None:
        with self.metrics.newest(self.pipeline) as newest:
            newest.transactions[outcome] += 1
        self.metrics.note_commit(self.pipeline, seconds)


def status_metrics(
    statuses: Sequence[Status],
    gauge: Callable[..., GaugeMetricFamily],
    counter: Callable[..., CounterMetricFamily],
    prefix: str = "",
) -> Iterator[Metric]:
    """The metrics of a fleet: state, what is desired, and restarts.

    Args:
        statuses: of its members.
        gauge: makes a metric, of a name, a help text and further labels than that of the member.
        counter: the same.
        prefix: of the names of gauges.
    """
    state = gauge(f"{prefix}state", "1 for the state that it is in.", "state")
    desired = gauge(f"{prefix}desired_running", "1 if it is to run.")
    restarts = counter("restarts", "Starts after a failure, by this process.")
    for status in statuses:
        for each in Observed:
            state.add_metric([status.name, each], float(each is status.observed))
        desired.add_metric([status.name], float(status.desired is Desired.RUNNING))
        restarts.add_metric([status.name], status.restarts)
    yield from (state, desired, restarts)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, what, labels=("pipeline", *labels))


def _counter(name: str, what: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, what, labels=("pipeline", *labels))

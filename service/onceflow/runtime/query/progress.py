"""Reports the progress of a running query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.observer import Observer, Report
from onceflow.errors import OnceflowError
from onceflow.protocol.identity import is_kafka_topic
from onceflow.protocol.ledger import HeadEntry
from onceflow.runtime.batch.executed import records_of

LAG_INTERVAL_S = 2.0
"""Between two looks at the brokers: a display need not be newer, and look-ups are not free."""
LAG_TIMEOUT_S = 1.0
UPLOAD_METRIC = "rocksdbCommitFileSyncLatencyMs"
"""Spark's name for the part of a commit of state that writes files to the checkpoint."""


@dataclass
class ProgressReporter:
    """Turns Spark's progress and the brokers' offsets into `progress` events.

    Args:
        state_rows: rows of the whole state as last sampled, or None.
        retention_left_s: time until retention is predicted to overtake the pipeline, or None.
    """

    report: Report
    broker: Broker
    position: Callable[[], HeadEntry]
    state_rows: Callable[[], int | None]
    retention_left_s: Callable[[], float | None]
    clock: Clock
    observer: Observer = field(default_factory=Observer)
    _seen_batch: int = -1
    _next_lag_s: float = 0.0

    def __call__(self, progress: Any) -> None:
        """Take in Spark's newest progress; None before the first batch."""
        facts: dict[str, object] = {}
        if progress is not None and progress.batchId != self._seen_batch:
            self._seen_batch = progress.batchId
            facts |= figures(progress) | {"state_rows": self.state_rows()}
        if self.clock.monotonic_s() >= self._next_lag_s:
            self._next_lag_s = self.clock.monotonic_s() + LAG_INTERVAL_S
            facts |= self._lag() | {"retention_left_s": self.retention_left_s()}
        if facts:
            self.report("progress", **facts)

    def _lag(self) -> dict[str, object]:
        try:
            lag = lag_of(self.position(), self.broker, self.clock.within(LAG_TIMEOUT_S))
        except OnceflowError:
            # A display without its lag is better than a query that ends for want of one.
            return {"lag": None}
        self.observer.lag(lag)
        # Before the first batch no position is known, so whatever waits is not counted.
        return {"lag": sum(lag.values()) if lag else None}


def lag_of(head: HeadEntry, broker: Broker, deadline: Deadline) -> Mapping[tuple[str, int], int]:
    """Offsets between the pipeline's position and the last stable offset of each input partition.

    Empty while no position is known, and for sources that do not read topics of the brokers.

    Raises:
        OnceflowError: the brokers did not tell.
    """
    lag: Counter[tuple[str, int]] = Counter()
    for topics in head.plan.sources.values():
        for topic, ranges in topics.items():
            offsets = broker.offsets(topic, deadline) if is_kafka_topic(topic) else {}
            for partition, (_, last_stable_offset, _) in offsets.items():
                _, end = ranges.get(partition, (0, 0))
                lag[topic, partition] += max(0, last_stable_offset - end)
    return lag


def figures(progress: Any) -> dict[str, object]:
    """Pick the figures worth reporting from Spark's progress of a batch.

    Times of the state are per task: Spark adds those of all tasks, which work side by side.
    """
    operators = progress.stateOperators
    return {
        "spark_batch_id": progress.batchId,
        "records_per_second": progress.processedRowsPerSecond,
        "duration_ms": dict(progress.durationMs),
        "source_records": records_of(progress.observedMetrics),
        "operators": [
            {
                "name": one.operatorName,
                "updated": one.numRowsUpdated,
                "dropped": one.numRowsDroppedByWatermark,
            }
            for one in operators
        ],
        "state_memory_bytes": sum(one.memoryUsedBytes for one in operators),
        "state_commit_ms": sum(
            _per_task(one, one.allUpdatesTimeMs + one.allRemovalsTimeMs + one.commitTimeMs)
            for one in operators
        ),
        "state_upload_ms": sum(
            _per_task(one, one.customMetrics.get(UPLOAD_METRIC, 0)) for one in operators
        ),
    }


def _per_task(operator: Any, total_ms: int) -> int:
    return int(total_ms / max(1, operator.numShufflePartitions))

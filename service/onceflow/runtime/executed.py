"""What Spark really ran, read from inside `foreachBatch` after the one action of the batch.

Not the offset log: on a `file:` checkpoint another driver may have replaced the entry since Spark
planned the batch from it, and `head` must tell what was read, not what was to be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onceflow.contracts.source import Position
from onceflow.errors import require
from onceflow.pipeline.plan import items_of, kind_of

_SCAN = "StreamingDataSourceV2ScanRelation"
_DROPPED = "numRowsDroppedByWatermark"


@dataclass(frozen=True)
class Execution:
    """One run of a batch's plan.

    Args:
        event_watermark_ms: Spark's watermark that it ran under.
        batch_timestamp_ms: its clock.
        positions: source -> (start, end) that it read. A source that had nothing new is missing:
            Spark leaves it out of the plan.
        read: records that the sources delivered.
        late: rows that stateful operators dropped behind the event watermark. Aggregations count
            them after having put those of one key and task together.
    """

    event_watermark_ms: int
    batch_timestamp_ms: int
    positions: Mapping[str, tuple[Position, Position]]
    read: int
    late: int


def observed(frame: DataFrame, source: str) -> DataFrame:
    """Count the records of a source as they are read."""
    return frame.observe(_observation_name(source), F.count(F.lit(1)))


class ExecutionReader:
    """Looks at the last execution of a query. One for each query: it remembers a plan's shape.

    Each look into the JVM is a round trip. Plans of a query have the same shape from batch to
    batch, so stateful operators are asked for by the numbers that Spark gives a tree's nodes:
    walking the whole plan took longer than the rest of `foreachBatch`.
    """

    def __init__(self) -> None:
        self._stateful: Mapping[int, str] | None = None
        """Number in the physical plan -> kind of node."""

    def read(self, query: Any, source_names: Sequence[str]) -> Execution:
        """For use inside `foreachBatch`, after the action.

        Observed metrics are exact and cost no further pass; late rows are counted by the stateful
        operators themselves (`StateStoreWriter.numRowsDroppedByWatermark`).
        """
        execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001  no public way
        metadata = execution.offsetSeqMetadata()
        metrics = execution.observedMetrics()
        return Execution(
            event_watermark_ms=metadata.batchWatermarkMs(),
            batch_timestamp_ms=metadata.batchTimestampMs(),
            positions=dict(_positions(execution.logical())),
            read=sum(_count(metrics, name) for name in source_names),
            late=self._dropped_rows(execution.executedPlan()),
        )

    def _dropped_rows(self, plan: Any) -> int:
        if self._stateful is None:
            self._stateful = _stateful_operators(plan)
        nodes = {number: plan.apply(number) for number in self._stateful}
        if any(node is None or kind_of(node) != self._stateful[n] for n, node in nodes.items()):
            self._stateful = _stateful_operators(plan)
            nodes = {number: plan.apply(number) for number in self._stateful}
        return sum(int(node.metrics().get(_DROPPED).get().value()) for node in nodes.values())


def _observation_name(source: str) -> str:
    return f"onceflow.{source}"


def _count(metrics: Any, source: str) -> int:
    row = metrics.get(_observation_name(source))
    require(row.isDefined(), "every source is observed", subject=source)
    return int(row.get().getLong(0))


def _positions(logical: Any) -> Iterator[tuple[str, tuple[Position, Position]]]:
    for leaf in items_of(logical.collectLeaves()):
        if kind_of(leaf) == _SCAN:
            start = json.loads(leaf.startOffset().get().json())
            end = json.loads(leaf.endOffset().get().json())
            yield end["source"], (start["position"], end["position"])


def _stateful_operators(plan: Any) -> Mapping[int, str]:
    found = {}
    for number in count():
        node = plan.apply(number)  # null beyond the last
        if node is None:
            break
        if node.metrics().contains(_DROPPED):
            found[number] = kind_of(node)
    return found

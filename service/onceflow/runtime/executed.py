"""What Spark really ran, read from inside `foreachBatch` after the one action of the batch.

Not the offset log: on a `file:` checkpoint another driver may have replaced the entry since Spark
planned the batch from it, and `head` must tell what was read, not what was to be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onceflow.contracts.source import Position
from onceflow.errors import require
from onceflow.pipeline.plan import items_of

_SCAN = "StreamingDataSourceV2ScanRelation"


@dataclass(frozen=True)
class Execution:
    """One run of a batch's plan.

    Args:
        event_watermark_ms: Spark's watermark that it ran under.
        batch_timestamp_ms: its clock.
        positions: source -> (start, end) that it read. A source that had nothing new is missing:
            Spark leaves it out of the plan.
        read: records that the sources delivered.
        late: rows that stateful operators dropped behind the event watermark.
    """

    event_watermark_ms: int
    batch_timestamp_ms: int
    positions: Mapping[str, tuple[Position, Position]]
    read: int
    late: int


def observed(frame: DataFrame, source: str) -> DataFrame:
    """Count the records of a source as they are read."""
    return frame.observe(_observation_name(source), F.count(F.lit(1)))


def read_execution(query: Any, source_names: Sequence[str]) -> Execution:
    """Look at the last execution of a query.

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
        late=_dropped_rows(execution.executedPlan()),
    )


def _observation_name(source: str) -> str:
    return f"onceflow.{source}"


def _count(metrics: Any, source: str) -> int:
    row = metrics.get(_observation_name(source))
    require(row.isDefined(), "every source is observed", subject=source)
    return int(row.get().getLong(0))


def _positions(node: Any) -> Iterator[tuple[str, tuple[Position, Position]]]:
    if node.getClass().getSimpleName() == _SCAN:
        start = json.loads(node.startOffset().get().json())
        end = json.loads(node.endOffset().get().json())
        yield end["source"], (start["position"], end["position"])
    for child in items_of(node.children()):
        yield from _positions(child)


def _dropped_rows(node: Any) -> int:
    metric = node.metrics().get("numRowsDroppedByWatermark")
    dropped = int(metric.get().value()) if metric.isDefined() else 0
    return dropped + sum(_dropped_rows(child) for child in items_of(node.children()))

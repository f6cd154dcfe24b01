"""Reads what Spark really ran, from inside `foreachBatch` after the one action of the batch.

Not the offset log: on a `file:` checkpoint another driver may have replaced the entry since Spark
planned the batch from it, and `head` must tell what was read, not what was to be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from onceflow.contracts.source import TICK_COLUMN, Position
from onceflow.errors import require
from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.query.rejects import REASON_COLUMN
from onceflow.pipeline.query.steps import REJECTED_COLUMN
from onceflow.protocol.references import ReferenceVersion

_OBSERVED = "onceflow."
"""Before the name of a source: what Spark calls its count of records."""
_STEP = "onceflow-step."
"""Before the name of a processor: what Spark calls the list of records that it failed on."""
_SHIELD = "onceflow-view."
"""Prefix of a source's name: an observation of its view whose figures are not used."""


@dataclass(frozen=True)
class Deduplication:
    """The work of a source's operator that drops duplicates, in one batch."""

    dropped: int
    operator_id: int


@dataclass(frozen=True)
class Execution:
    """One run of a batch's plan.

    Args:
        positions: source -> (start, end) that it read. A source that had nothing new is missing:
            Spark leaves it out of the plan.
        counts: source -> records that it delivered, and how many of them were rejected.
        late: rows that stateful operators dropped as too late. Aggregations count
            them after having put those of one key and task together.
        state_rows: that stateful operators hold after it, but for keys of sources' duplicates.
            Always 0 unless Spark counts them (`session.COUNT_ROWS`).
        newest_event_ms: newest event time of all rows, ticks among them; None if none had any.
        deduplications: source -> what became of its duplicates, for each that looks for them.
        step_rejects: processor -> records that it failed on, as JSON, sorted.
        keeps_order: whether rows of an input partition came out in its order.
        is_doubtful: whether `counts` may hold records twice. What was computed for a shuffle and
            lost with an executor is computed again, and Spark counts it again.
        parameters: name -> value, for each that is set in the batch.
        references: name -> the version that it has in the batch.
    """

    event_watermark_ms: int
    batch_timestamp_ms: int
    positions: Mapping[str, tuple[Position, Position]]
    counts: Mapping[str, tuple[int, int]]
    late: int
    state_rows: int = 0
    newest_event_ms: int | None = None
    deduplications: Mapping[str, Deduplication] = field(default_factory=dict)
    step_rejects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keeps_order: bool = False
    is_doubtful: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, ReferenceVersion] = field(default_factory=dict)

    def newest_since(self, before_ms: int | None) -> int | None:
        """The newest event time of this batch and what was before it."""
        known = [at for at in (before_ms, self.newest_event_ms) if at is not None]
        return max(known, default=None)

    @property
    def read(self) -> int:
        """Records of all sources."""
        return sum(read for read, _ in self.counts.values())

    @property
    def rejected(self) -> int:
        """How many of them no query saw, or a processor failed on."""
        by_steps = sum(map(len, self.step_rejects.values()))
        return by_steps + sum(rejected for _, rejected in self.counts.values())

    @property
    def duplicates(self) -> int:
        """How many of them were duplicates."""
        return sum(each.dropped for each in self.deduplications.values())


def observed(marked: DataFrame, source: str) -> DataFrame:
    """Count the records of a source as they are read, and those that have a reason to be rejected.

    Spark moves no filter below an observation, so that all of them are counted.
    """
    is_record = F.col(TICK_COLUMN).isNull() if TICK_COLUMN in marked.columns else F.lit(True)
    columns = (
        F.count(F.when(is_record, 1)).alias("read"),
        F.count(F.col(REASON_COLUMN)).alias("rejected"),
    )
    return marked.observe(_OBSERVED + source, *columns)


def observed_step(step: str, rows: DataFrame) -> DataFrame:
    """Collect the records that a processor failed on. The driver has them all."""
    return rows.observe(_STEP + step, F.collect_list(REJECTED_COLUMN).alias("rejected"))


def records_of(metrics: Mapping[str, Any]) -> Mapping[str, int]:
    """Source -> records that it delivered, by what Spark's progress of a batch observed."""
    return {
        name.removeprefix(_OBSERVED): row.read
        for name, row in metrics.items()
        # A query may observe under any name.
        if name.startswith(_OBSERVED) and "read" in row
    }


def shielded(source: str, view: DataFrame) -> DataFrame:
    """Keep filters of the query above the event watermark of a view.

    Spark would let them through, and records that the query does not want would no longer move
    event time, nor would ticks. It lets none through an observation.
    """
    return view.observe(_SHIELD + source, F.count(F.lit(1)))


class ExecutionReader:
    """Looks at the last execution of a query.

    Each look at a node from Python is a round trip, and another to forget it, so the walk through
    the plan is done by Java code, in one call.
    """

    def __init__(self, spark: SparkSession, source_names: Sequence[str]) -> None:
        jvm = jvm_of(spark)
        self._source_count = len(source_names)
        self._reader = new_instance(jvm, "ExecutionReader")
        self._executors: str = self._reader.executors(spark._jsparkSession)  # noqa: SLF001

    def read(self, query: StreamingQuery) -> Execution:
        """For use inside `foreachBatch`, after the action.

        Observed metrics are exact and cost no further pass; late rows are counted by the stateful
        operators themselves (`StateStoreWriter.numRowsDroppedByWatermark`).
        """
        execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001  no public way
        found = json.loads(self._reader.read(execution, _OBSERVED, _STEP))
        counts = {name: tuple(pair) for name, pair in found["counts"].items()}
        require(
            len(counts) == self._source_count,
            "every source is observed",
            found=f"{len(counts)} of {self._source_count}",
        )
        before, self._executors = self._executors, found["executors"]
        is_doubtful = before != self._executors
        return Execution(
            event_watermark_ms=found["event_watermark_ms"],
            batch_timestamp_ms=found["batch_timestamp_ms"],
            positions={
                end["source"]: (start["position"], end["position"])
                for start, end in found["offsets"]
            },
            counts=counts,
            late=found["late"],
            state_rows=found["state_rows"],
            newest_event_ms=found["newest_event_ms"],
            deduplications={
                name: Deduplication(**facts) for name, facts in found["deduplications"].items()
            },
            step_rejects={
                # What was computed twice was also collected twice.
                step: sorted(set(texts) if is_doubtful else texts)
                for step, texts in found["step_rejects"].items()
            },
            keeps_order=found["keeps_order"],
            is_doubtful=is_doubtful,
        )

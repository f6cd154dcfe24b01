"""One micro-batch, as Spark's `foreachBatch` calls it: collect once, number, commit or skip."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import OnceflowError, RecordError, require
from onceflow.protocol.identity import BatchKey, FencingToken, pipeline_tag
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts
from onceflow.protocol.proposal import BatchProposal
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.checkpoint import Checkpoint
from onceflow.runtime.committer import Committer, Payload
from onceflow.runtime.output import OutputFormat, encode_collected
from onceflow.runtime.rows import KEY_COLUMN, number_records, sort_batch
from onceflow.runtime.spark_errors import over_budget, translated_errors


class DrainRequestedError(Exception):
    """Raised at the start of a batch that shall not run now. It replays identically later."""


@dataclass(frozen=True)
class Observation:
    """What Spark counted while a batch ran.

    Args:
        read: records that the sources delivered.
        late: rows that a stateful operator dropped behind the event watermark.
    """

    read: int
    late: int


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a batch; for progress displays.

    Args:
        head: position of the ledger after it.
        is_skipped: it was committed before, and this replay was equal.
    """

    head: HeadEntry
    is_skipped: bool


@dataclass(frozen=True)
class BatchSettings:
    """What every batch of a run needs.

    Args:
        pipeline: name.
        query_id: Spark's id of the query, from the checkpoint.
        token: of our claim.
        run_id: of our claim.
        plan_hash: of the query as it is now.
        output: how rows become records; a key column, if there is one, may not be null.
        max_result_bytes: rows of one batch that the driver will hold.
        partition_of: partitions of a column of keys, or of values if there is no key.
        observe: reads Spark's counts of the batch that has just run.
    """

    pipeline: str
    query_id: str
    token: FencingToken
    run_id: str
    plan_hash: str
    output: OutputFormat
    max_result_bytes: int
    partition_of: Callable[[Sequence[bytes | None]], list[int]]
    observe: Callable[[], Observation]


@dataclass
class BatchGate:
    """Lets a drain wait for the running batch and keep the next one from beginning."""

    _is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self, timeout_s: float) -> bool:
        """Let no further batch begin; wait for the running one. False if it did not end."""
        self._is_closed = True
        if not self._lock.acquire(timeout=timeout_s):
            return False
        self._lock.release()
        return True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_closed:
            self._lock.release()
            raise DrainRequestedError

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class BatchRunner:
    """The function that is given to `foreachBatch`. Called by one thread, batch after batch.

    Args:
        settings: of this run.
        checkpoint: to read what Spark pinned for the batch.
        committer: leads the batch to its end.
        head: position of the ledger when the query starts; must be registered.
        report: told of every batch that ended well.
    """

    def __init__(
        self,
        settings: BatchSettings,
        checkpoint: Checkpoint,
        committer: Committer,
        head: HeadEntry,
        report: Callable[[BatchOutcome], None],
    ) -> None:
        self.gate = BatchGate()
        self.failure: OnceflowError | None = None
        """What ended the query, if it was one of ours: Spark only keeps its text."""
        self.head = head
        self._settings = settings
        self._checkpoint = checkpoint
        self._committer = committer
        self._report = report

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Run the whole plan once, then commit its rows, or skip them if that happened before.

        Raises:
            DrainRequestedError: before any effect.
            OnceflowError: as `Committer.commit`; Spark does not log the batch as done.
        """
        with self.gate:
            try:
                self._run(frame, batch_id)
            except OnceflowError as error:
                self.failure = error
                raise

    def _run(self, frame: DataFrame, batch_id: int) -> None:
        reach(CrashPoint.AFTER_OFFSET_LOG)
        plan = self._checkpoint.plan(batch_id)
        table = self._collect(frame)
        batch = sort_batch(table, self.head.sink.partitions, self._settings.partition_of)
        counts = self._settings.observe()
        entry = replace(
            self.head,
            batch=BatchKey(self._settings.query_id, batch_id),
            token=self._settings.token,
            run_id=self._settings.run_id,
            plan=plan,
            sink=self.head.sink.advanced(batch.counts),
            records=RecordCounts(counts.read, counts.late, 0, len(batch.rows)),
            digest=batch.digest,
            plan_hash=self._settings.plan_hash,
            note="",
        )
        headers = HeaderPacker(
            pipeline_tag=pipeline_tag(self._settings.pipeline),
            generation=self.head.generation,
            plan_tag=plan.tag(),
            batch_id=batch_id,
        )
        records = number_records(batch, self.head.sink, headers, plan.batch_timestamp_ms)
        payload = Payload(self.head.sink.topic, records, _end_offsets(plan))
        is_skipped = self.head.batch == entry.batch
        self._committer.commit(BatchProposal(entry), self.head, payload)
        if not is_skipped:
            # Also where the committer found, behind a lost answer, that the entry was written.
            self.head = entry
        self._report(BatchOutcome(self.head, is_skipped))

    def _collect(self, frame: DataFrame) -> pa.Table:
        """Run the plan: one action, so that state is touched once."""
        budget = self._settings.max_result_bytes
        with translated_errors(budget):
            table = frame.toArrow()
        if table.nbytes > budget:
            raise over_budget(budget, f"{table.nbytes} bytes")
        if self._settings.output.key and (nulls := table.column(KEY_COLUMN).null_count):
            raise RecordError(
                "the key column is null",
                subject=f"output topic {self.head.sink.topic}",
                expected="a key in every row",
                found=f"{nulls} rows without one",
                then="stopping; nothing of this batch was written; filter them, or use coalesce()",
            )
        return encode_collected(table, self._settings.output)


def _end_offsets(plan: BatchPlan) -> Mapping[tuple[str, int], int]:
    """Where every source partition stands after the batch. One topic in two sources: the lower."""
    ends: dict[tuple[str, int], int] = {}
    for topics in plan.sources.values():
        for topic, ranges in topics.items():
            for partition, (_, end) in ranges.items():
                ends[topic, partition] = min(end, ends.get((topic, partition), end))
    return ends


def observe_execution(query: Any, source_names: Sequence[str]) -> Observation:
    """Read the counts of the batch that has just run, from inside `foreachBatch`.

    Observed metrics are exact and cost no further pass; late rows are counted by the stateful
    operators themselves (`StateStoreWriter.numRowsDroppedByWatermark`).
    """
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001  no public way
    observed = execution.observedMetrics()
    read = 0
    for name in source_names:
        row = observed.get(_observation_name(name))
        require(row.isDefined(), "every source is observed", subject=name)
        read += row.get().getLong(0)
    return Observation(read, _dropped_rows(execution.executedPlan()))


def observed(frame: DataFrame, source: str) -> DataFrame:
    """Count the records of a source as they are read."""
    return frame.observe(_observation_name(source), F.count(F.lit(1)))


def _observation_name(source: str) -> str:
    return f"onceflow.{source}"


def _dropped_rows(plan: Any) -> int:
    metric = plan.metrics().get("numRowsDroppedByWatermark")
    dropped = metric.get().value() if metric.isDefined() else 0
    children = plan.children()
    return int(dropped) + sum(_dropped_rows(children.apply(i)) for i in range(children.size()))

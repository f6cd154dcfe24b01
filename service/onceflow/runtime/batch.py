"""One micro-batch, as Spark's `foreachBatch` calls it: collect once, number, commit or skip."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from onceflow.contracts.source import TopicRanges
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import CorruptionError, OnceflowError, RecordError
from onceflow.protocol.digest import Row
from onceflow.protocol.identity import BatchKey, FencingToken, pipeline_tag
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.plan_identity import PlanIdentity
from onceflow.protocol.proposal import BatchProposal
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.committer import Committer, Payload
from onceflow.runtime.executed import Execution
from onceflow.runtime.output import OutputFormat, encode_collected
from onceflow.runtime.rows import KEY_COLUMN, number_records, sort_batch
from onceflow.runtime.spark_errors import over_budget, translated_errors


class DrainRequestedError(Exception):
    """Raised at the start of a batch that shall not run now. It replays identically later."""


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
        plan: of the query as it is now.
        output: how rows become records; a key column, if there is one, may not be null.
        max_result_bytes: rows of one batch that the driver will hold.
        partition_of: partitions of a column of keys, or of values if there is no key.
        sources: arithmetic of every source, by name.
        read_execution: tells what Spark ran for the batch that has just run.
        check_output: fails if the output topic is not the one that the ledger knows.
        explain: adds to an error the rows in which a replay differs from the committed batch.
    """

    pipeline: str
    query_id: str
    token: FencingToken
    run_id: str
    plan: PlanIdentity
    output: OutputFormat
    max_result_bytes: int
    partition_of: Callable[[Sequence[bytes | None]], list[int]]
    sources: Mapping[str, SourceArithmetic]
    read_execution: Callable[[], Execution]
    check_output: Callable[[SinkState], None]
    explain: Callable[[CorruptionError, HeadEntry, Sequence[Row]], CorruptionError]


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
        checkpoint: tells where a source stands that no batch has read from.
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
        table = self._collect(frame)
        execution = self._settings.read_execution()
        plan = self._plan(execution, batch_id)
        batch = sort_batch(table, self.head.sink.partitions, self._settings.partition_of)
        entry = replace(
            self.head,
            batch=BatchKey(self._settings.query_id, batch_id),
            token=self._settings.token,
            run_id=self._settings.run_id,
            plan=plan,
            sink=self.head.sink.advanced(batch.counts),
            records=RecordCounts(execution.read, execution.late, 0, len(batch.rows)),
            digest=batch.digest,
            plan_hash=self._settings.plan.hash,
            plan_parts=self._settings.plan.parts,
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
        self._settings.check_output(self.head.sink)
        try:
            self._committer.commit(BatchProposal(entry), self.head, payload)
        except CorruptionError as error:
            if is_skipped and entry.digest != self.head.digest:
                raise self._settings.explain(error, self.head, batch.rows) from error
            raise
        if not is_skipped:
            # Also where the committer found, behind a lost answer, that the entry was written.
            self.head = entry
        self._report(BatchOutcome(self.head, is_skipped))

    def _plan(self, execution: Execution, batch_id: int) -> BatchPlan:
        """What Spark ran, in the ledger's words."""
        sources = {}
        for name, arithmetic in self._settings.sources.items():
            if name in execution.positions:
                sources[name] = arithmetic.ranges(*execution.positions[name])
            elif name in self.head.plan.sources:
                sources[name] = _standing(self.head.plan.sources[name], at=1)
            else:
                sources[name] = _standing(self._checkpoint.plan(batch_id).sources[name], at=0)
        return BatchPlan(sources, execution.event_watermark_ms, execution.batch_timestamp_ms)

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


def _standing(topics: TopicRanges, at: int) -> TopicRanges:
    """Empty ranges at the starts (0) or ends (1) of others: a source that had nothing new."""
    return {
        topic: {partition: (bounds[at], bounds[at]) for partition, bounds in ranges.items()}
        for topic, ranges in topics.items()
    }


def _end_offsets(plan: BatchPlan) -> Mapping[tuple[str, int], int]:
    """Where every source partition stands after the batch. One topic in two sources: the lower."""
    ends: dict[tuple[str, int], int] = {}
    for topics in plan.sources.values():
        for topic, ranges in topics.items():
            for partition, (_, end) in ranges.items():
                ends[topic, partition] = min(end, ends.get((topic, partition), end))
    return ends

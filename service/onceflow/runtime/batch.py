"""One micro-batch, as Spark's `foreachBatch` calls it: collect once, number, commit or skip."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql import DataFrame

from onceflow.contracts.source import TopicRanges
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import CorruptionError, OnceflowError, RecordError
from onceflow.pipeline.rejects import Reason
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import Row
from onceflow.protocol.identity import BatchKey, FencingToken, pipeline_tag, revision_of
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.order import Order
from onceflow.protocol.plan_identity import PlanIdentity
from onceflow.protocol.proposal import BatchProposal, HeadProposal, plan_difference
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.collect import collect
from onceflow.runtime.committer import Payload
from onceflow.runtime.divergence import DivergenceDesk
from onceflow.runtime.executed import Execution
from onceflow.runtime.late import LateDesk
from onceflow.runtime.output import OutputFormat, encode_collected
from onceflow.runtime.rejects import RejectDesk
from onceflow.runtime.rows import SortedBatch, number_records, sort_batch


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
        waivers: rules of determinism that it breaks and somebody answers for.
        order: of the records of each batch after the one that `head` already decided on.
        delivery: mode.
        output: how rows become records.
        max_result_bytes: rows of one batch that the driver will hold.
        partition_of: partitions of a column of keys, or of values if there is no key.
        sources: arithmetic of every source, by name.
        read_execution: tells what Spark ran for the batch that has just run.
        check_output: fails if the output topic is not the one that the ledger knows.
        rejects: knows what becomes of records and rows that are not used.
        late: knows which records came too late.
        divergence: knows in which rows a replay differs from the committed batch.
        retired: source -> topics that are read no more; a group can commit no offset of one that
            was deleted.
    """

    pipeline: str
    query_id: str
    token: FencingToken
    run_id: str
    plan: PlanIdentity
    waivers: tuple[str, ...]
    order: Order
    delivery: Delivery
    output: OutputFormat
    max_result_bytes: int
    partition_of: Callable[[Sequence[bytes | None]], list[int]]
    sources: Mapping[str, SourceArithmetic]
    read_execution: Callable[[], Execution]
    check_output: Callable[[SinkState], None]
    rejects: RejectDesk
    late: LateDesk
    divergence: DivergenceDesk
    retired: Mapping[str, Collection[str]] = field(default_factory=dict)


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


class Commits(Protocol):
    """What leads a proposal to its end: `Committer`, or whoever stands in for it."""

    def commit(
        self, proposal: BatchProposal | HeadProposal, head: HeadEntry | None, payload: Payload, /
    ) -> object:
        """Return if it is written, or was."""


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
        committer: Commits,
        head: HeadEntry,
        report: Callable[[BatchOutcome], None],
    ) -> None:
        self.gate = BatchGate()
        self.failure: OnceflowError | None = None
        """What ended the query, if it was one of ours: Spark only keeps its text."""
        self.computing: int | None = None
        """The batch that Spark computes at this moment."""
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
        settings = self._settings
        self.computing = batch_id
        try:
            table = collect(frame, settings.max_result_bytes)
        finally:
            self.computing = None
        execution = settings.rejects.recounted(settings.read_execution())
        plan = self._plan(execution, batch_id)
        key = BatchKey(settings.query_id, batch_id)
        is_skipped = self.head.batch == key
        # A batch that is skipped has written its account and its letters.
        letters = [] if is_skipped else settings.rejects.of_input(execution, batch_id)
        late, late_letters = (0, []) if is_skipped else settings.late.of_batch(execution, batch_id)
        letters += late_letters
        table, keyless = settings.rejects.without_null_keys(table)
        order = self._order(execution, is_skipped=is_skipped)
        batch = sort_batch(
            encode_collected(table, settings.output, revision_of(self.head.generation, batch_id)),
            self.head.sink.partitions,
            settings.partition_of,
            order,
        )
        if is_skipped:
            # The topic's limit may be another one now; then, it was the largest that it refused.
            refused = max(0, self.head.records.refused - len(keyless))
            batch = batch.without(batch.largest(refused))
        letters += settings.rejects.of_output(
            keyless, Reason.NULL_KEY, batch_id, plan.batch_timestamp_ms
        )
        counts = RecordCounts(
            execution.read, late, execution.rejected, duplicates=execution.duplicates
        )
        newest_event_ms = execution.newest_since(self.head.newest_event_ms)
        counts = replace(counts, refused=len(keyless))
        computed = _Computed(key, plan, counts, batch, order, letters, newest_event_ms)
        settings.check_output(self.head.sink)
        try:
            entry = self._commit(computed)
        except CorruptionError as error:
            if not is_skipped or batch.digest == self.head.digest:
                raise
            entry = self._keep_committed(computed, error)
        if not is_skipped:
            # Also where the committer found, behind a lost answer, that the entry was written.
            self.head = entry.known_to_be_written()
        self._report(BatchOutcome(self.head, is_skipped))

    def _order(self, execution: Execution, *, is_skipped: bool) -> Order:
        """As `head` says, which outlives a crash in the middle of the batch.

        Where Spark has exchanged rows although the query does not ask for it, as it may if a
        constant relation is too large to be broadcast, arrival means nothing.
        """
        if is_skipped:
            return self.head.order
        order = self.head.next_order
        return order if execution.keeps_order else order.by_content()

    def _commit(self, computed: _Computed) -> HeadEntry:
        """Write the batch, or skip it; without the rows that the broker refuses, if it may."""
        rejects, batch_id = self._settings.rejects, computed.key.batch_id
        entry = self._entry(computed)
        try:
            self._committer.commit(BatchProposal(entry), self.head, self._payload(computed, entry))
        except RecordError as error:
            # Outside a transaction, other records may already have these sequences.
            is_undone = self._settings.delivery is Delivery.EXACTLY_ONCE
            refused = rejects.too_large(computed.batch.rows, error) if is_undone else ()
            if not refused:
                raise
            clock_ms = computed.plan.batch_timestamp_ms
            more = rejects.of_output(refused, Reason.TOO_LARGE, batch_id, clock_ms)
            fitting = computed.without(refused, more)
            entry = self._entry(fitting)
            self._committer.commit(BatchProposal(entry), self.head, self._payload(fitting, entry))
        return entry

    def _keep_committed(self, computed: _Computed, error: CorruptionError) -> HeadEntry:
        """Keep what is committed and put aside what the replay has otherwise, if that is wanted.

        What a further replay of the batch computes is not put aside once more.

        Raises:
            CorruptionError: it is not wanted, or not only rows differ.
            DeadlineError: the committed rows cannot be read; nothing was written.
        """
        desk, head = self._settings.divergence, self.head
        if not desk.is_quarantined or plan_difference(head.plan, computed.plan):
            raise desk.explained(error, head, computed.batch.rows) from error
        if head.records.diverged:
            return head
        clock_ms = computed.plan.batch_timestamp_ms
        count, letters = desk.letters(head, computed.batch.rows, clock_ms)
        entry = head.diverged(self._settings.token, self._settings.run_id, count)
        beside = self._settings.rejects.records(letters, clock_ms)
        self._committer.commit(HeadProposal(head, entry), head, Payload(beside=beside))
        self.head = entry
        return entry

    def _entry(self, computed: _Computed) -> HeadEntry:
        """The position of the ledger after the batch."""
        counts = replace(computed.counts, written=len(computed.batch.rows))
        return replace(
            self.head,
            batch=computed.key,
            token=self._settings.token,
            run_id=self._settings.run_id,
            plan=computed.plan,
            sink=self.head.sink.advanced(computed.batch.counts),
            records=counts,
            totals=self.head.totals + counts,
            digest=computed.batch.digest,
            plan_hash=self._settings.plan.hash,
            plan_parts=self._settings.plan.parts,
            waivers=self._settings.waivers,
            note="",
            newest_event_ms=computed.newest_event_ms,
            order=computed.order,
            next_order=self._settings.order,
        ).under(self._settings.delivery)

    def _payload(self, computed: _Computed, entry: HeadEntry) -> Payload:
        """What the transaction carries beside that entry."""
        plan = computed.plan
        headers = HeaderPacker(
            pipeline_tag=pipeline_tag(self._settings.pipeline),
            generation=self.head.generation,
            plan_tag=plan.tag(),
            batch_id=computed.key.batch_id,
            mode=self._settings.delivery.flag,
            lineage=self.head.lineage,
        )
        clock_ms = plan.batch_timestamp_ms
        records = number_records(computed.batch, self.head.sink, headers, clock_ms)
        beside = self._settings.rejects.records(computed.letters, clock_ms)
        return Payload(
            entry.sink.topic, records, _end_offsets(plan, self._settings.retired), beside
        )

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


@dataclass(frozen=True)
class _Computed:
    """What came of the plan of one batch."""

    key: BatchKey
    plan: BatchPlan
    counts: RecordCounts
    batch: SortedBatch
    order: Order
    letters: Sequence[DeadLetter]
    newest_event_ms: int | None

    def without(self, refused: Sequence[Row], letters: Sequence[DeadLetter]) -> _Computed:
        """The same, of which the output topic does not take some rows."""
        counts = replace(self.counts, refused=self.counts.refused + len(refused))
        left = self.batch.without(refused)
        return replace(self, counts=counts, batch=left, letters=[*self.letters, *letters])


def _standing(topics: TopicRanges, at: int) -> TopicRanges:
    """Empty ranges at the starts (0) or ends (1) of others: a source that had nothing new."""
    return {
        topic: {partition: (bounds[at], bounds[at]) for partition, bounds in ranges.items()}
        for topic, ranges in topics.items()
    }


def _end_offsets(
    plan: BatchPlan, retired: Mapping[str, Collection[str]]
) -> Mapping[tuple[str, int], int]:
    """Where every source partition stands after the batch. One topic in two sources: the lower."""
    ends: dict[tuple[str, int], int] = {}
    for source, topics in plan.sources.items():
        for topic, ranges in topics.items():
            if topic in retired.get(source, ()):
                continue
            for partition, (_, end) in ranges.items():
                ends[topic, partition] = min(end, ends.get((topic, partition), end))
    return ends

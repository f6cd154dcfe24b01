"""One micro-batch, as Spark's `foreachBatch` calls it: execute, judge, write or skip, report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from pyspark.sql import DataFrame

from onceflow.contracts.source import TopicRanges
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import CorruptionError, InvariantError, OnceflowError, RecordError
from onceflow.pipeline.query.rejects import Reason
from onceflow.protocol.commit import Verdict
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import Row
from onceflow.protocol.identity import (
    BatchKey,
    FencingToken,
    is_kafka_topic,
    pipeline_tag,
    revision_of,
)
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.order import Order
from onceflow.protocol.proposal import BatchProposal, HeadProposal
from onceflow.protocol.query_identity import QueryIdentity
from onceflow.protocol.record import HeaderPacker
from onceflow.protocol.references import ReferenceVersion
from onceflow.protocol.state_sample import StateSample
from onceflow.runtime.batch.divergence import DivergenceDesk
from onceflow.runtime.batch.executed import Execution
from onceflow.runtime.batch.late import LateDesk
from onceflow.runtime.batch.rejects import RejectDesk
from onceflow.runtime.checkpoint.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.commit.committer import Payload
from onceflow.runtime.records.output import OutputFormat, collect, encode_collected
from onceflow.runtime.records.rows import SortedBatch, number_records, sort_batch


class DrainRequestedError(Exception):
    """Raised at the start of a batch that shall not run now. It replays identically later."""


@dataclass(frozen=True)
class BatchOutcome:
    """The result of a batch; skipped if it was committed before, and this replay was equal."""

    head: HeadEntry
    is_skipped: bool


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
    """Leads a proposal to its end: `Committer`, or a comparison that writes nothing."""

    def commit(
        self, proposal: BatchProposal | HeadProposal, head: HeadEntry | None, payload: Payload, /
    ) -> object:
        """Return if it is written, or was."""


@dataclass(eq=False)
class BatchRunner:
    """The function that is given to `foreachBatch`. Called by one thread, batch after batch.

    Args:
        head: position of the ledger; must be registered. Moves with every batch.
        order: of the records of each batch after the one that `head` already decided on.
        is_quarantined: a replay that computes other rows goes to the dead letters, and the
            committed rows stay; otherwise the pipeline halts.
        retired: source -> topics that are read no more; a group can commit no offset of one that
            was deleted.
        share_parameters: tells the values of this batch, and hands them to its tasks.
        references: tells the versions that they have in this batch.
        checkpoint: tells where a source stands that no batch has read from.
        state_sample: gives the newest one of the state.
    """

    head: HeadEntry
    query_id: str
    token: FencingToken
    run_id: str
    identity: QueryIdentity
    waivers: tuple[str, ...]
    order: Order
    delivery: Delivery
    is_quarantined: bool
    output: OutputFormat
    partition_of: Callable[[Sequence[bytes | None]], list[int]]
    max_result_bytes: int
    sources: Mapping[str, SourceArithmetic]
    retired: Mapping[str, Collection[str]]
    checkpoint: Checkpoint
    read_execution: Callable[[], Execution]
    share_parameters: Callable[[], Mapping[str, str]]
    check_output: Callable[[SinkState], None]
    rejects: RejectDesk
    late: LateDesk
    divergence: DivergenceDesk
    committer: Commits
    report: Callable[[BatchOutcome], None]
    gate: BatchGate = field(default_factory=BatchGate)
    state_sample: Callable[[], StateSample | None] = lambda: None
    references: Callable[[], Mapping[str, ReferenceVersion]] = dict
    failure: OnceflowError | None = None
    """The error that ended the query, if Onceflow raised it: Spark keeps only its text."""
    computing: int | None = None
    """The batch that Spark computes at this moment."""

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
        computed = self._compute(frame, batch_id)
        self.check_output(self.head.sink)
        proposal = BatchProposal(self._entry(computed, RecordCounts()))
        verdict = proposal.judge(self.head).verdict
        match verdict:
            case Verdict.WRITE:
                self.head = self._write(computed)
            case Verdict.DIVERGED if self.is_quarantined:
                self.head = self._put_aside(computed)
            case Verdict.DIVERGED | Verdict.HALT:
                self._halt(proposal, computed)
        self.report(BatchOutcome(self.head, is_skipped=verdict is not Verdict.WRITE))

    def _compute(self, frame: DataFrame, batch_id: int) -> _Computed:
        """Execute the plan, and bring its rows into the order in which they are numbered."""
        self.computing = batch_id
        try:
            parameters = self.share_parameters()
            table = collect(frame, self.max_result_bytes)
        finally:
            self.computing = None
        execution = replace(
            self.read_execution(), parameters=parameters, references=self.references()
        )
        table, keyless = self.rejects.without_null_keys(table)
        key = BatchKey(self.query_id, batch_id)
        is_replay = self.head.batch == key
        order = self._order(execution, is_replay=is_replay)
        batch = sort_batch(
            encode_collected(table, self.output, revision_of(self.head.generation, batch_id)),
            self.head.sink.partitions,
            self.partition_of,
            order,
        )
        if is_replay:
            # The topic's limit may be another one now; then, it was the largest that it refused.
            refused = max(0, self.head.records.refused - len(keyless))
            batch = batch.without(batch.largest(refused))
        return _Computed(key, execution, self._plan(execution, batch_id), batch, order, keyless)

    def _order(self, execution: Execution, *, is_replay: bool) -> Order:
        """As `head` says, which outlives a crash in the middle of the batch.

        Where Spark has exchanged rows although the query does not ask for it, as it may if a
        constant relation is too large to be broadcast, arrival means nothing.
        """
        if is_replay:
            return self.head.order
        order = self.head.next_order
        return order if execution.keeps_order else order.by_content()

    def _write(self, computed: _Computed) -> HeadEntry:
        """Commit the batch with its letters; without the rows that the broker refuses, if it may.

        Returns:
            The new `head`, also if the committer found after a lost answer that it was written.
        """
        batch_id, clock_ms = computed.key.batch_id, computed.plan.batch_timestamp_ms
        execution, keyless = self.rejects.recounted(computed.execution), computed.keyless
        letters = self.rejects.of_input(execution, batch_id)
        letters += self.rejects.of_steps(execution, batch_id)
        late, late_letters = self.late.of_batch(execution, batch_id)
        letters += late_letters
        letters += self.rejects.of_output(keyless, Reason.NULL_KEY, batch_id, clock_ms)
        counts = RecordCounts(
            execution.read,
            late,
            execution.rejected,
            duplicates=execution.duplicates,
            refused=len(keyless),
        )
        try:
            return self._commit(computed, counts, letters)
        except RecordError as error:
            # Outside a transaction, other records may already have these sequences.
            is_undone = self.delivery is Delivery.EXACTLY_ONCE
            refused = self.rejects.too_large(computed.batch.rows, error) if is_undone else ()
            if not refused:
                raise
        letters += self.rejects.of_output(refused, Reason.TOO_LARGE, batch_id, clock_ms)
        fitting = replace(computed, batch=computed.batch.without(refused))
        return self._commit(fitting, counts + RecordCounts(refused=len(refused)), letters)

    def _commit(
        self, computed: _Computed, counts: RecordCounts, letters: Sequence[DeadLetter]
    ) -> HeadEntry:
        entry = self._entry(computed, counts)
        payload = self._payload(computed, entry, letters)
        self.committer.commit(BatchProposal(entry), self.head, payload)
        return entry.known_to_be_written()

    def _put_aside(self, computed: _Computed) -> HeadEntry:
        """Keep what is committed, and write the rows that differ to the dead letters.

        What a further replay of the batch computes is not put aside once more.

        Raises:
            DeadlineError: the committed rows cannot be read; nothing was written.
        """
        head, clock_ms = self.head, computed.plan.batch_timestamp_ms
        if head.records.diverged:
            return head
        count, letters = self.divergence.letters(head, computed.batch.rows, clock_ms)
        entry = head.diverged(self.token, self.run_id, count)
        payload = Payload(letters=self.rejects.records(letters, clock_ms))
        self.committer.commit(HeadProposal(head, entry), head, payload)
        return entry

    def _halt(self, proposal: BatchProposal, computed: _Computed) -> NoReturn:
        """Let the protocol decide whether checkpoint and ledger contradict each other.

        Raises:
            FencedError: they do not: a newer instance has moved `head`.
            CorruptionError: they do. Shows the rows of a replay that differ.
        """
        try:
            self.committer.commit(proposal, self.head, Payload())
        except CorruptionError as error:
            is_replay = self.head.batch == computed.key
            if not is_replay or self.head.digest == computed.batch.digest:
                raise
            raise self.divergence.explained(error, self.head, computed.batch.rows) from error
        raise InvariantError("a batch that contradicts the ledger is not committed")

    def _entry(self, computed: _Computed, counts: RecordCounts) -> HeadEntry:
        """The position of the ledger after the batch."""
        counts = replace(counts, written=len(computed.batch.rows))
        return replace(
            self.head,
            batch=computed.key,
            token=self.token,
            run_id=self.run_id,
            plan=computed.plan,
            sink=self.head.sink.advanced(computed.batch.counts),
            records=counts,
            totals=self.head.totals + counts,
            digest=computed.batch.digest,
            plan_hash=self.identity.hash,
            plan_parts=self.identity.parts,
            waivers=self.waivers,
            note="",
            newest_event_ms=computed.execution.newest_since(self.head.newest_event_ms),
            order=computed.order,
            next_order=self.order,
            state=self.state_sample(),
        ).under(self.delivery)

    def _payload(
        self, computed: _Computed, entry: HeadEntry, letters: Sequence[DeadLetter]
    ) -> Payload:
        """Number the rows, and encode what the transaction carries with `entry`."""
        plan = computed.plan
        headers = HeaderPacker(
            pipeline_tag=pipeline_tag(entry.pipeline),
            generation=self.head.generation,
            plan_tag=plan.tag(),
            batch_id=computed.key.batch_id,
            mode=self.delivery.flag,
            lineage=self.head.lineage,
        )
        clock_ms = plan.batch_timestamp_ms
        records = number_records(computed.batch, self.head.sink, headers, clock_ms)
        encoded = self.rejects.records(letters, clock_ms)
        return Payload(entry.sink.topic, records, _end_offsets(plan, self.retired), encoded)

    def _plan(self, execution: Execution, batch_id: int) -> BatchPlan:
        """Describe what Spark ran in the ledger's terms."""
        sources = {}
        for name, arithmetic in self.sources.items():
            if name in execution.positions:
                sources[name] = arithmetic.ranges(*execution.positions[name])
            elif name in self.head.plan.sources:
                sources[name] = _standing(self.head.plan.sources[name], at=1)
            else:
                sources[name] = _standing(self.checkpoint.plan(batch_id).sources[name], at=0)
        return BatchPlan(
            sources,
            execution.event_watermark_ms,
            execution.batch_timestamp_ms,
            execution.parameters,
            execution.references,
        )


@dataclass(frozen=True)
class _Computed:
    """The rows of one batch, not yet judged; `keyless` ones lack the key that they must have."""

    key: BatchKey
    execution: Execution
    plan: BatchPlan
    batch: SortedBatch
    order: Order
    keyless: Sequence[Row]


def _standing(topics: TopicRanges, at: int) -> TopicRanges:
    """Empty ranges at the starts (0) or ends (1) of others: a source that had nothing new."""
    return {
        topic: {partition: (bounds[at], bounds[at]) for partition, bounds in ranges.items()}
        for topic, ranges in topics.items()
    }


def _end_offsets(
    plan: BatchPlan, retired: Mapping[str, Collection[str]]
) -> Mapping[tuple[str, int], int]:
    """Where every partition of a topic stands after the batch. In two sources: the lower."""
    ends: dict[tuple[str, int], int] = {}
    for source, topics in plan.sources.items():
        for topic, ranges in topics.items():
            if topic in retired.get(source, ()) or not is_kafka_topic(topic):
                continue
            for partition, (_, end) in ranges.items():
                ends[topic, partition] = min(end, ends.get((topic, partition), end))
    return ends

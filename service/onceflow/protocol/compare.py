"""Checkpoint against ledger: the table of protocol section 7, as one pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from onceflow.errors import NEW_GENERATION, CorruptionError, LineageError, OnceflowError
from onceflow.protocol.ledger import NOTHING_COMMITTED, BatchPlan, HeadEntry, Origin
from onceflow.protocol.proposal import plan_difference, range_difference
from onceflow.protocol.record import Flag, RecordHeader

NOT_WRITTEN: Mapping[int, RecordHeader] = {}
"""An output without a record of the pipeline."""


class Remedy(Enum):
    """A repair that an operator may ask for when a start was refused."""

    ADOPT = "adopt"
    """Make the checkpoint's plan follow the ledger."""
    NEW_GENERATION = "new-generation"
    """Begin on a checkpoint that has nothing planned yet; sequences go on."""
    REBUILD = "rebuild"
    """Reconstruct `head` from the output."""


class Decision(Enum):
    """How a start goes on."""

    REGISTER = auto()
    """Write a first `head` for this query."""
    GO_ON = auto()
    """Start the query."""
    REPAIR_PLAN = auto()
    """Make the offset log end with the batch of `head`, as `head` has it; then start the query."""
    NEW_GENERATION = auto()
    """Write a `head` of the next generation, which continues the numbers of the output."""
    REBUILD = auto()
    """Write the `head` that follows from output and checkpoint, and do not start."""
    HALT = auto()


@dataclass(frozen=True)
class CheckpointFacts:
    """The state of Spark's checkpoint.

    Args:
        query_id: of its `metadata` file; None if there is no checkpoint.
        planned: newest batch of the offset log.
        done: newest batch of the commit log.
        plans: Spark's plans of these two batches, if the offset log still has them.
        copied: the `head` to begin from, if this is a copy: for a fork, or of state that was moved.
    """

    query_id: str | None
    planned: int = NOTHING_COMMITTED
    done: int = NOTHING_COMMITTED
    plans: Mapping[int, BatchPlan] | None = None
    copied: HeadEntry | None = None

    @property
    def beginning(self) -> HeadEntry | None:
        """The `head` that a copy begins from, as long as nothing was planned there."""
        if self.copied is None or not self.copied.batch.batch_id == self.planned == self.done:
            return None
        return self.copied

    @property
    def is_blank(self) -> bool:
        """Whether there is no checkpoint, or one in which nothing is planned."""
        return self.query_id is None or self.planned == NOTHING_COMMITTED == self.done

    def plan_like(self, head: HeadEntry) -> BatchPlan:
        """The plan of `head`'s batch in the offset log; the committed one if the log has none."""
        return (self.plans or {}).get(head.batch.batch_id, head.plan)


@dataclass(frozen=True)
class Comparison:
    """A decision and, for HALT, the error to raise and what may cure it."""

    decision: Decision
    error: OnceflowError | None = None
    remedies: tuple[Remedy, ...] = ()


def compare(
    checkpoint: CheckpointFacts,
    head: HeadEntry | None,
    remedy: Remedy | None = None,
    written: Mapping[int, RecordHeader] = NOT_WRITTEN,
) -> Comparison:
    """Decide how a start goes on.

    `written` has the newest record of this pipeline in each output partition, read after `head`,
    and after every older transaction was decided.

    A remedy that does not cure what is wrong changes nothing: the start is refused as without it,
    and one that was asked for where nothing is wrong is refused too.
    """
    found = _compare(checkpoint, head, written)
    if remedy is None:
        return found
    if remedy not in found.remedies:
        error = LineageError(
            "this remedy does not apply",
            subject=remedy.value,
            expected=", ".join(r.value for r in found.remedies) or "a start without a remedy",
            found=_facts(checkpoint, head),
            then=str(found.error or "start without it"),
        )
        return _halt(error)
    return Comparison(_CURES[remedy])


_CURES = {
    Remedy.ADOPT: Decision.REPAIR_PLAN,
    Remedy.NEW_GENERATION: Decision.NEW_GENERATION,
    Remedy.REBUILD: Decision.REBUILD,
}


def _compare(
    checkpoint: CheckpointFacts, head: HeadEntry | None, written: Mapping[int, RecordHeader]
) -> Comparison:
    if head is not None and (newer := _newer_than(head, written)):
        return _set_back(checkpoint, head, newer)
    if checkpoint.is_blank:
        return _compare_blank(checkpoint, head, written)
    beginning = checkpoint.beginning
    if head is None and beginning and not beginning.is_moved:
        return _forked_over(written) if written else Comparison(Decision.REGISTER)
    if head is None:
        return _halt(
            CorruptionError(
                "the ledger is lost",
                expected="a head entry for this checkpoint",
                found=_facts(checkpoint, head),
                then="halting; `onceflow ledger rebuild FILE --reason ...` reconstructs it from the"
                " output",
            ),
            Remedy.REBUILD,
        )
    if head.batch.query_id != checkpoint.query_id and beginning and beginning.is_moved:
        return _compare_moved(checkpoint, beginning, head)
    if head.batch.query_id != checkpoint.query_id:
        return _halt(
            LineageError(
                "the checkpoint belongs to another query",
                subject="metadata",
                expected=f"query {head.batch.query_id}, as in the ledger",
                found=f"query {checkpoint.query_id}",
                then=f"halting; use the checkpoint that the ledger names, or {NEW_GENERATION}",
            )
        )
    return _compare_lineage(checkpoint, head)


def _newer_than(head: HeadEntry, written: Mapping[int, RecordHeader]) -> Mapping[int, RecordHeader]:
    """Find records that were committed after `head`, although each transaction writes both.

    Only of the same lineage: a lineage that the pipeline forgot may have had larger numbers.
    """
    return {
        partition: header
        for partition, header in written.items()
        if header.lineage == head.lineage
        and not header.flags & Flag.AT_LEAST_ONCE
        and header.batch_order > head.batch_order
    }


def _set_back(
    checkpoint: CheckpointFacts, head: HeadEntry, newer: Mapping[int, RecordHeader]
) -> Comparison:
    """Halt: new records would have numbers that readers have seen, and be taken for repeats."""
    partition, header = max(newer.items(), key=lambda item: item[1].batch_order)
    # Only a checkpoint that has planned the newest batch knows what that has read.
    may_rebuild = checkpoint.query_id is not None and checkpoint.planned >= header.batch_id
    may_begin = checkpoint.planned == NOTHING_COMMITTED
    remedies = {Remedy.REBUILD: may_rebuild, Remedy.NEW_GENERATION: may_begin}
    cure = "`onceflow ledger rebuild FILE --reason ...` takes what the output holds"
    return _halt(
        CorruptionError(
            "the ledger is older than the output: a backup was restored, or Kafka lost"
            " acknowledged data",
            expected=f"a head at batch {header.batch_id} of generation {header.generation}, which"
            f" wrote sequence {header.sequence} to partition {partition}",
            found=_facts(checkpoint, head),
            then="halting; "
            + (cure if may_rebuild else "restore the newer ledger and checkpoint")
            + f"; or {NEW_GENERATION}, which continues the numbers of the output",
        ),
        *_applying(remedies),
    )


def _compare_blank(
    checkpoint: CheckpointFacts, head: HeadEntry | None, written: Mapping[int, RecordHeader]
) -> Comparison:
    if head is None and written:
        return _forgotten(checkpoint, written)
    if head is None:
        return Comparison(Decision.REGISTER)
    is_ours = head.batch.query_id == checkpoint.query_id
    if is_ours and head.batch.batch_id == NOTHING_COMMITTED:
        return Comparison(Decision.REGISTER)
    if is_ours:
        return _behind(checkpoint, head)
    return _halt(
        LineageError(
            "this pipeline has written output under another checkpoint",
            expected=f"the checkpoint of query {head.batch.query_id}",
            found=_facts(checkpoint, head),
            then="halting; use that checkpoint, or `--new-generation --reason ...`",
        ),
        Remedy.NEW_GENERATION,
    )


def _forgotten(checkpoint: CheckpointFacts, written: Mapping[int, RecordHeader]) -> Comparison:
    """Halt: readers would take what a registration writes, from sequence 1 on, for repeats."""
    return _halt(
        LineageError(
            "the output holds records of this pipeline, which neither ledger nor checkpoint know",
            expected="the ledger and the checkpoint that they were written with",
            found=f"{_first_of(written)}; {_facts(checkpoint, None)}",
            then="halting; restore the ledger or the checkpoint, or run with `--new-generation"
            " --reason ...`, which reads the input from its start and continues the numbers of the"
            " output",
        ),
        Remedy.NEW_GENERATION,
    )


def _first_of(written: Mapping[int, RecordHeader]) -> str:
    partition, header = min(written.items())
    return f"sequence {header.sequence} of generation {header.generation} in partition {partition}"


def _forked_over(written: Mapping[int, RecordHeader]) -> Comparison:
    """Halt, as `_forgotten`; but this checkpoint has state, and cannot begin a new generation."""
    return _halt(
        LineageError(
            "the output holds records of a pipeline with the name of this fork",
            expected="an output without any",
            found=_first_of(written),
            then="halting; fork under another name, or to another output topic",
        )
    )


def _compare_moved(
    checkpoint: CheckpointFacts, beginning: HeadEntry, head: HeadEntry
) -> Comparison:
    """State begins right after the batch that it was copied after, or never."""
    if beginning.origin == Origin.of(head):
        return Comparison(Decision.REGISTER)
    return _halt(
        LineageError(
            "the pipeline has gone on since its state was moved to this checkpoint",
            expected=f"a head at {beginning.origin}",
            found=_facts(checkpoint, head),
            then="halting; use the checkpoint of the query in the ledger, or migrate that again",
        )
    )


def _compare_lineage(checkpoint: CheckpointFacts, head: HeadEntry) -> Comparison:
    planned, done, committed = checkpoint.planned, checkpoint.done, head.batch.batch_id
    if planned == done + 2 == committed + 1:
        # The commit log lost an entry. The ledger proves its batch. It does not know the plan
        # after it, which Spark makes again.
        return Comparison(Decision.REPAIR_PLAN)
    if not done <= planned <= done + 1:
        return _halt(
            CorruptionError(
                "the checkpoint contradicts itself",
                subject=f"offsets/{done}" if planned < done else f"commits/{planned - 1}",
                expected="an offset log that ends at, or one after, its commit log",
                found=_facts(checkpoint, head),
                then=f"halting; restore the checkpoint, or {NEW_GENERATION}",
            )
        )
    if committed < done:
        return _halt(
            CorruptionError(
                "the ledger is behind the checkpoint: Kafka lost acknowledged data, or the ledger"
                " was reset",
                expected=f"head at batch {done} or {done + 1}",
                found=_facts(checkpoint, head),
                then="halting; check the brokers; then `onceflow ledger rebuild FILE --reason ...`"
                " takes what the output holds",
            ),
            Remedy.REBUILD,
        )
    if committed == done:
        return _compare_done(checkpoint, head)
    if committed == done + 1 == planned:
        # Watermark and clock count, too: the replay must be the batch that was committed.
        if plan_difference(head.plan, checkpoint.plan_like(head)):
            return Comparison(Decision.REPAIR_PLAN)
        return Comparison(Decision.GO_ON)
    return _behind(checkpoint, head)


def _compare_done(checkpoint: CheckpointFacts, head: HeadEntry) -> Comparison:
    """Only ranges count: nothing reads the watermark and the clock of a batch that is done."""
    difference = range_difference(head.plan.sources, checkpoint.plan_like(head).sources)
    if difference is None:
        return Comparison(Decision.GO_ON)
    expected, found = difference
    committed = head.batch.batch_id
    return _halt(
        CorruptionError(
            "two drivers raced on this checkpoint, and the other one's plan is in the offset log",
            # A batch begins where the one before ends.
            subject=" or ".join(f"offsets/{n}" for n in (committed, committed - 1) if n >= 0),
            expected=f"what the ledger committed: {expected}",
            found=found,
            then="halting, since the state may hold other input than the output; restore the file,"
            f" or {NEW_GENERATION}; `--adopt --reason ...` takes the ledger's ranges",
        ),
        Remedy.ADOPT,
    )


def _behind(checkpoint: CheckpointFacts, head: HeadEntry) -> Comparison:
    """The output is ahead of the checkpoint; one missing plan can be adopted, more cannot."""
    is_next = head.batch.batch_id == checkpoint.done + 1 == checkpoint.planned + 1
    if is_next:
        kind: type[OnceflowError] = CorruptionError
        what = "the offset log lost its newest entry"
        cure = "`--adopt --reason ...` writes it from the ledger"
    else:
        kind = LineageError
        what = "the checkpoint is older than the output (restored backup, or lost files)"
        cure = "use the newer checkpoint"
    error = kind(
        what,
        expected=f"offsets/{head.batch.batch_id} in the checkpoint",
        found=_facts(checkpoint, head),
        then=f"halting; {cure}, or {NEW_GENERATION}",
    )
    # A checkpoint that has planned a batch has state, which cannot become another lineage's.
    is_blank = checkpoint.planned == NOTHING_COMMITTED
    return _halt(error, *_applying({Remedy.ADOPT: is_next, Remedy.NEW_GENERATION: is_blank}))


def _applying(remedies: Mapping[Remedy, bool]) -> Iterator[Remedy]:
    return (remedy for remedy, applies in remedies.items() if applies)


def _halt(error: OnceflowError, *remedies: Remedy) -> Comparison:
    return Comparison(Decision.HALT, error, remedies)


def _facts(checkpoint: CheckpointFacts, head: HeadEntry | None) -> str:
    left, right = "no checkpoint", "no head in the ledger"
    if checkpoint.query_id is not None:
        left = (
            f"checkpoint of query {checkpoint.query_id} with planned batch {checkpoint.planned},"
            f" done batch {checkpoint.done}"
        )
    if head is not None:
        right = f"head at batch {head.batch.batch_id} of query {head.batch.query_id}"
    return f"{left}; {right}"

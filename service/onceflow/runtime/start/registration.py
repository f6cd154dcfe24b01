"""Registers, repairs, or begins a new generation, after a take-over and before the query starts.

Every `head` is written in a lane transaction after the fence, by the machine that commits batches.
"""

from __future__ import annotations

from dataclasses import replace

from onceflow.contracts.connector import Broker
from onceflow.errors import FencedError, InvariantError
from onceflow.protocol.compare import Decision
from onceflow.protocol.identity import BatchKey, lineage_of
from onceflow.protocol.ledger import (
    FIRST_GENERATION,
    NO_PLAN,
    NOTHING_COMMITTED,
    HeadEntry,
    OwnerEntry,
    RecordCounts,
    SinkState,
)
from onceflow.protocol.proposal import HeadProposal
from onceflow.protocol.query_identity import QueryIdentity
from onceflow.protocol.tails import new_generation
from onceflow.protocol.takeover import is_mine
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.commit.committer import Payload
from onceflow.runtime.commit.writer import Writer
from onceflow.runtime.start.rebuild import rebuild_head
from onceflow.runtime.topics.output_tail import EVERYWHERE, read_tails

CONFIRM_TIMEOUT_S = 30.0


def first_head(
    pipeline: str, query_id: str, sink: SinkState, plan: QueryIdentity, owner: OwnerEntry
) -> HeadEntry:
    """The `head` of a pipeline that has committed nothing: what its lineage begins with."""
    return HeadEntry(
        pipeline=pipeline,
        generation=FIRST_GENERATION,
        batch=BatchKey(query_id, NOTHING_COMMITTED),
        token=owner.token,
        run_id=owner.run_id,
        plan=NO_PLAN,
        sink=sink,
        records=RecordCounts(),
        digest="",
        plan_hash=plan.hash,
        plan_parts=plan.parts,
        lineage=lineage_of(owner.run_id),
    )


def settle(
    writer: Writer,
    wanted: HeadEntry,
    checkpoint: Checkpoint,
    broker: Broker,
    *,
    is_change_accepted: bool = False,
) -> HeadEntry:
    """Carry out the decision of a take-over's comparison.

    Args:
        writer: has claimed the pipeline.
        wanted: as `first_head` or `begun_from`, with the delivery mode and the order from now on.
        checkpoint: of the pipeline; its plan is repaired.
        broker: to read the output with, for a rebuild or a new generation.
        is_change_accepted: go on with another query than before.

    Returns:
        The `head` that the query starts from.

    Raises:
        FencedError, OutcomeUnknownError: as `Committer.commit`.
        CorruptionError: a rebuild found that output and checkpoint do not fit.
        LineageError: a new generation found nothing in the output to number on from.
    """
    takeover = writer.takeover
    decision, head = takeover.comparison.decision, takeover.head
    reading = writer.clock.within(EVERYWHERE.timeout_s)
    match decision:
        case Decision.REGISTER:
            return _write(writer, _after(wanted, head))
        case Decision.NEW_GENERATION:
            blank = _after(wanted, head)
            tails = read_tails(blank, broker, reading)
            return _write(writer, new_generation(blank, head, tails))
        case Decision.REBUILD:
            return _write(writer, rebuild_head(_after(wanted, head), broker, checkpoint, reading))
    if head is None:
        raise InvariantError("no other decision begins without a head")
    if decision is Decision.REPAIR_PLAN:
        _confirm_owner(writer)
        checkpoint.write_plan(head)
    if is_change_accepted:
        return _write(writer, _under_another_plan(wanted, head))
    if wanted.next_order != head.next_order:
        return _write(writer, head.ordering(wanted.next_order, wanted.token, wanted.run_id))
    return head


def _after(wanted: HeadEntry, head: HeadEntry | None) -> HeadEntry:
    """A head without a batch. Sequences go on where the output stands; they never start again."""
    if head is None:
        return wanted
    return replace(
        wanted,
        generation=head.generation,
        sink=replace(wanted.sink, sequence=head.sink.sequence).advanced({}),
        at_risk=head.at_risk,
        lineage=head.lineage,
    )


def _under_another_plan(wanted: HeadEntry, head: HeadEntry) -> HeadEntry:
    """The same position; a replay of its batch still has to give the same digest."""
    return replace(
        head.written_again(wanted.token, wanted.run_id, wanted.note),
        plan_hash=wanted.plan_hash,
        plan_parts=wanted.plan_parts,
        delivery=wanted.delivery,
        next_order=wanted.next_order,
        state=None,
    )


def _confirm_owner(writer: Writer) -> None:
    """A checkpoint has no fence: an instance that was frozen would change its successor's.

    Raises:
        FencedError: another instance has claimed the pipeline since.
        DeadlineError: no answer in time.
    """
    owner = writer.ledger.read_owner(writer.clock.within(CONFIRM_TIMEOUT_S))
    if not is_mine(owner, writer.run_id):
        raise FencedError.by_newer_instance(writer.pipeline, writer.run_id)


def _write(writer: Writer, entry: HeadEntry) -> HeadEntry:
    head = writer.takeover.head
    writer.committer.commit(HeadProposal(head, entry), head, Payload())
    return entry

"""Registers, repairs, or begins a new generation, after a take-over and before the query starts.

Every `head` is written in a lane transaction after the fence, by the machine that commits batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from onceflow.errors import InvariantError
from onceflow.protocol.compare import Decision
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import BatchKey, Layout, lineage_of
from onceflow.protocol.ledger import (
    NO_PLAN,
    NOTHING_COMMITTED,
    HeadEntry,
    RecordCounts,
    SinkState,
)
from onceflow.protocol.order import SORTED, Order
from onceflow.protocol.proposal import HeadProposal
from onceflow.protocol.query_identity import QueryIdentity
from onceflow.runtime.commit.committer import Committer, Payload
from onceflow.runtime.commit.takeover import Takeover
from onceflow.runtime.commit.writer import Writer

FIRST_GENERATION = 1


@dataclass(frozen=True)
class Registration:
    """The content of a first `head`.

    Args:
        pipeline: name.
        query_id: of the checkpoint.
        topic: output topic.
        partitions: of the output topic; pinned from now on.
        topic_id: of the output topic; pinned too.
        layout: lanes of this driver.
        plan: of the query as it is now.
        reason: of an operator who asked for a remedy.
        is_change_accepted: whether that is to go on with another query than before.
        delivery: mode from now on.
        order: of the records of batches from now on; None to leave it as `head` says.
    """

    pipeline: str
    query_id: str
    topic: str
    partitions: int
    layout: Layout
    plan: QueryIdentity
    reason: str = ""
    topic_id: str = ""
    is_change_accepted: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    order: Order | None = None


@dataclass(frozen=True)
class Repairs:
    """The ways of writing what a crash or a person destroyed.

    Args:
        confirm: raises FencedError unless `owner` is still ours. A checkpoint has no fence: an
            instance that was frozen since it read `head` would change the one of its successor.
        write_plan: makes the checkpoint's plan follow a `head`.
        rebuild_head: makes a `head` from output and checkpoint, given a blank one.
        number_on: makes a blank `head` of a new generation go on where the output stands, if that
            is further than the `head` before, or no `head` is known.
    """

    confirm: Callable[[], None]
    write_plan: Callable[[HeadEntry], None]
    rebuild_head: Callable[[HeadEntry], HeadEntry]
    number_on: Callable[[HeadEntry, HeadEntry | None], HeadEntry]


def settle(writer: Writer, wanted: Registration, repairs: Repairs) -> HeadEntry:
    """Carry out the decision of a take-over's comparison.

    Returns:
        The `head` that the query starts from.

    Raises:
        FencedError, OutcomeUnknownError: as `Committer.commit`.
        CorruptionError: a rebuild found that output and checkpoint do not fit.
        LineageError: a new generation found nothing in the output to number on from.
    """
    takeover, committer = writer.takeover, writer.committer
    decision, head = takeover.comparison.decision, takeover.head
    generation = head.generation if head else FIRST_GENERATION
    if decision is Decision.REGISTER:
        return _write(_entry(takeover, wanted, generation), head, committer)
    if decision is Decision.NEW_GENERATION:
        begun = repairs.number_on(_entry(takeover, wanted, generation), head)
        return _write(begun, head, committer)
    if decision is Decision.REBUILD:
        rebuilt = repairs.rebuild_head(_entry(takeover, wanted, generation))
        return _write(rebuilt, head, committer)
    if head is None:
        raise InvariantError("no other decision begins without a head")
    if decision is Decision.REPAIR_PLAN:
        repairs.confirm()
        repairs.write_plan(head)
    if wanted.is_change_accepted:
        return _write(_under_another_plan(takeover, wanted, head), head, committer)
    if wanted.order is not None and wanted.order != head.next_order:
        owner = takeover.owner
        entry = head.ordering(wanted.order, owner.token, owner.run_id)
        return _write(entry, head, committer)
    return head


def _under_another_plan(takeover: Takeover, wanted: Registration, head: HeadEntry) -> HeadEntry:
    """The same position; a replay of its batch still has to give the same digest."""
    return replace(
        head,
        token=takeover.owner.token,
        run_id=takeover.owner.run_id,
        sink=head.sink.advanced({}),
        records=head.records.of_replays(),
        plan_hash=wanted.plan.hash,
        plan_parts=wanted.plan.parts,
        note=wanted.reason,
        delivery=wanted.delivery,
        next_order=wanted.order or head.next_order,
    )


def _entry(takeover: Takeover, wanted: Registration, generation: int) -> HeadEntry:
    """A head without a batch. Sequences go on where the output stands; they never start again."""
    before = takeover.head.sink.sequence if takeover.head else {}
    at_risk = takeover.head.at_risk if takeover.head else {}
    sink = SinkState(wanted.topic, wanted.partitions, wanted.layout, before, wanted.topic_id)
    return HeadEntry(
        pipeline=wanted.pipeline,
        generation=generation,
        batch=BatchKey(wanted.query_id, NOTHING_COMMITTED),
        token=takeover.owner.token,
        run_id=takeover.owner.run_id,
        plan=NO_PLAN,
        sink=sink.advanced({}),
        records=RecordCounts(),
        digest="",
        plan_hash=wanted.plan.hash,
        plan_parts=wanted.plan.parts,
        note=wanted.reason,
        delivery=wanted.delivery,
        at_risk=at_risk,
        lineage=takeover.head.lineage if takeover.head else lineage_of(takeover.owner.run_id),
        next_order=wanted.order or (takeover.head.next_order if takeover.head else SORTED),
    )


def _write(entry: HeadEntry, head: HeadEntry | None, committer: Committer) -> HeadEntry:
    committer.commit(HeadProposal(head, entry), head, Payload())
    return entry

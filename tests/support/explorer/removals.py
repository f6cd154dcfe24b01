"""The protocol with one of its rules taken away, to show what the rule is for.

The product has no switches: each removal wraps one of its functions here, on the side of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from onceflow.errors import CorruptionError
from onceflow.protocol import commit, compare, lane, tails, takeover
from onceflow.protocol.compare import NOT_WRITTEN
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import HeadEntry, OwnerEntry
from onceflow.protocol.proposal import BatchProposal
from onceflow.protocol.record import BatchOrder, RecordHeader
from onceflow.protocol.takeover import TakeoverAction as Do
from onceflow.protocol.takeover import TakeoverPhase as Phase
from tests.support.explorer.product import SLOT, Reads, Rules
from tests.support.explorer.scope import Beginning, Fault, PlanReads, Scope
from tests.support.explorer.spark import LogWrites

CommitStep: TypeAlias = Callable[[commit.CommitState, Any], commit.Step]

SHARED_LOG = Scope(
    batches=1,
    plan_variants=2,
    log_writes=LogWrites.CHECK_THEN_RENAME,
    faults=frozenset(),
)
"""A checkpoint on which a driver may overwrite the plan of another one."""


@dataclass(frozen=True)
class Removal:
    """A rule that is gone.

    Args:
        rule: what the product does, as in docs/protocol.md.
        finds: the first word or two of the violation that must be found; others are passed over.
        scope: large enough, and with the faults it takes, to show the harm.
    """

    rule: str
    finds: str
    rules: Rules
    scope: Scope


def _quick(*faults: Fault, batches: int = 1) -> Scope:
    return Scope(batches=batches, faults=frozenset(faults))


# ---- lanes


def _ready_at_once_after(done: lane.LaneEvent) -> Callable[[Any, Any], lane.LaneStep]:
    def step(phase: lane.LanePhase, event: lane.LaneEvent) -> lane.LaneStep:
        return (lane.LanePhase.READY, ()) if event is done else lane.step(phase, event)

    return step


_unconfirmed_lane = _ready_at_once_after(lane.LaneEvent.INITIALISED)
_reused_incarnation = _ready_at_once_after(lane.LaneEvent.RELEASED)


# ---- take-over


def _at(state: takeover.TakeoverState, phase: Phase, *actions: Do) -> takeover.Step:
    return replace(state, phase=phase), actions


def _unconfirmed_fence(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    state, actions = takeover.step(state, event)
    if state.phase is Phase.CONFIRMING_OWNER:
        return takeover.step(state, takeover.OwnerRead(state.claim))
    return state, actions


def _no_read_back(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    state, actions = takeover.step(state, event)
    if state.phase is Phase.READING_BACK and event is takeover.TakeoverEvent.DONE:
        return takeover.step(state, takeover.OwnerRead(state.claim))
    return state, actions


def _start_with_fence(claimant: takeover.Claimant) -> takeover.Step:
    state, _ = takeover.start(claimant)
    lanes = frozenset(claimant.layout.lane_ids())
    return _at(replace(state, to_fence=lanes), Phase.FENCING, Do.FENCE_LANES)


def _fence_before_claim(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    before = state.phase
    state, actions = takeover.step(state, event)
    if state.phase is Phase.CONFIRMING_OWNER:
        return _at(state, Phase.INITIALISING, Do.INITIALISE_OWNER)
    if before is Phase.READING_BACK and state.phase is Phase.FENCING:
        return _at(state, Phase.READING_HEAD, Do.READ_HEAD)
    return state, actions


def _head_before_fence(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    before = state.phase
    state, actions = takeover.step(state, event)
    if before is Phase.READING_BACK and state.phase is Phase.FENCING:
        return _at(state, Phase.READING_HEAD, Do.READ_HEAD)
    if before is Phase.READING_HEAD:
        return _at(state, Phase.FENCING, Do.FENCE_LANES)
    if before is Phase.CONFIRMING_OWNER and not state.phase.is_final:
        return _at(state, Phase.COMPARING, Do.COMPARE)
    return state, actions


def _mine_by_token(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    if isinstance(event, takeover.OwnerRead) and _has_token(event.owner, state.claim):
        event = takeover.OwnerRead(state.claim)
    return takeover.step(state, event)


def _has_token(owner: OwnerEntry | None, claim: OwnerEntry | None) -> bool:
    return owner is not None and claim is not None and owner.token == claim.token


def _shrinking_layout(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    if isinstance(event, takeover.OwnerRead) and event.owner is not None:
        claimed = replace(event.owner, max_layout=Layout(SLOT + 1, 1))
        if state.phase is Phase.READING_PREVIOUS:
            event = takeover.OwnerRead(claimed)
    return takeover.step(state, event)


def _takeover_halts_at_once(state: takeover.TakeoverState, event: Any) -> takeover.Step:
    state, actions = takeover.step(state, event)
    if state.phase is Phase.CONFIRMING_HALT:
        return _at(state, Phase.HALTED)
    return state, actions


# ---- commit


def _commit_halts_at_once(proposal: commit.Proposal, head: HeadEntry | None) -> commit.Step:
    state, actions = commit.start(proposal, head)
    if state.phase is commit.Phase.CONFIRMING_HALT:
        return replace(state, phase=commit.Phase.HALTED), ()
    return state, actions


def _without_head_read_after(cause: commit.Event) -> CommitStep:
    """The resettling behind one kind of answer leads straight to another transaction."""

    def step(state: commit.CommitState, event: Any) -> commit.Step:
        is_skipped = state.judgement.found == cause.name and event is commit.Event.LANE_READY
        state, actions = commit.step(state, event)
        if is_skipped:
            return replace(state, phase=commit.Phase.AWAITING_LANE), (commit.Action.ACQUIRE_LANE,)
        if event in (commit.Event.FENCED, commit.Event.UNKNOWN):
            state = replace(state, judgement=replace(state.judgement, found=event.name))
        return state, actions

    return step


def _ignored_refusal(state: commit.CommitState, event: Any) -> commit.Step:
    if event in (commit.Event.REFUSED, commit.Event.REFUSED_FOR_GOOD):
        event = commit.Event.DONE
    return commit.step(state, event)


def _nothing_but_records(state: commit.CommitState, event: Any) -> commit.Step:
    state, actions = commit.step(state, event)
    while state.phase in (commit.Phase.SENDING_HEAD, commit.Phase.SENDING_OFFSETS):
        state, actions = commit.step(state, commit.Event.DONE)
    return state, actions


@dataclass(frozen=True)
class _RangelessProposal:
    """A batch that is judged by its number alone."""

    entry: HeadEntry

    @property
    def delivery(self) -> Delivery:
        return self.entry.delivery

    def judge(self, head: HeadEntry | None) -> commit.Judgement:
        if head is not None:
            known = replace(self.entry, batch=head.batch)
            head = replace(head, plan=known.plan, digest=known.digest)
            if head.batch.batch_id == self.entry.batch.batch_id - 1:
                return commit.Judgement(commit.Verdict.WRITE)
        return BatchProposal(self.entry).judge(head)


class _RecordsBehindHead(BatchProposal):
    """At least once on the route of at most once."""

    @property
    def delivery(self) -> Delivery:
        return Delivery.AT_MOST_ONCE


class _RecordsBeforeHead(BatchProposal):
    """At most once on the route of at least once."""

    @property
    def delivery(self) -> Delivery:
        return Delivery.AT_LEAST_ONCE


class _FinishedByAnybody(BatchProposal):
    """Counts a commit found after a lost answer as its own, even if another run made it."""

    def judge(self, head: HeadEntry | None) -> commit.Judgement:
        judgement = super().judge(head)
        if judgement.verdict is commit.Verdict.SKIP:
            return replace(judgement, verdict=commit.Verdict.FINISH)
        return judgement


# ---- comparison


Written: TypeAlias = Mapping[int, RecordHeader]


def _rangeless_comparison(
    checkpoint: compare.CheckpointFacts, head: HeadEntry | None, *, written: Written = NOT_WRITTEN
) -> compare.Comparison:
    return compare.compare(replace(checkpoint, plans=None), head, written=written)


def _clockless_comparison(
    checkpoint: compare.CheckpointFacts, head: HeadEntry | None, *, written: Written = NOT_WRITTEN
) -> compare.Comparison:
    if head is not None:
        clock = head.plan.batch_timestamp_ms
        plans = (checkpoint.plans or {}).items()
        told = {number: replace(plan, batch_timestamp_ms=clock) for number, plan in plans}
        checkpoint = replace(checkpoint, plans=told)
    return compare.compare(checkpoint, head, written=written)


def remedied_comparison(
    checkpoint: compare.CheckpointFacts, head: HeadEntry | None, *, written: Written = NOT_WRITTEN
) -> compare.Comparison:
    """No removal: an operator who takes the first remedy of those that are offered."""
    comparison = compare.compare(checkpoint, head, written=written)
    for remedy in comparison.remedies[:1]:
        return compare.compare(checkpoint, head, remedy, written)
    return comparison


def _outputless_comparison(
    checkpoint: compare.CheckpointFacts, head: HeadEntry | None, *, written: Written = NOT_WRITTEN
) -> compare.Comparison:
    return remedied_comparison(checkpoint, head)


def commitless_comparison(
    checkpoint: compare.CheckpointFacts, head: HeadEntry | None, *, written: Written = NOT_WRITTEN
) -> compare.Comparison:
    """A removal: without the repair of a commit log that lost an entry."""
    if checkpoint.planned > checkpoint.done + 1:
        error = CorruptionError("the checkpoint contradicts itself")
        return compare.Comparison(compare.Decision.HALT, error)
    return compare.compare(checkpoint, head, written=written)


def _batch_of_any_generation(
    output: tails.OutputTails, checkpoint: compare.CheckpointFacts, generation: int
) -> BatchOrder:
    """The largest batch_id, of whatever generation."""
    largest = max(output.tails.values(), key=lambda tail: tail.header.batch_id)
    output = replace(output, tails={0: largest})
    return tails.last_batch(output, checkpoint, generation)


def _generation_after_the_ledger(
    blank: HeadEntry, before: HeadEntry | None, output: tails.OutputTails
) -> HeadEntry:
    """The `head` decides, wherever the output stands."""
    return tails.new_generation(blank, before, replace(output, tails={}))


def _begun_at_nothing(fork: HeadEntry, blank: HeadEntry) -> HeadEntry:
    """As any other registration."""
    return blank


REMOVALS = (
    Removal(
        "owner is read after a lane was initialised in the background",
        "ZOMBIE COMMIT",
        Rules(lane_step=_unconfirmed_lane),
        _quick(Fault.REFUSED),
    ),
    Removal(
        "owner is read after a lane was initialised and the answer was lost",
        "ZOMBIE COMMIT",
        Rules(resettle_step=_unconfirmed_lane),
        _quick(Fault.LOST_ANSWER),
    ),
    Removal(
        "owner is read after every lane was fenced",
        "ZOMBIE COMMIT",
        Rules(takeover_step=_unconfirmed_fence),
        _quick(),
    ),
    Removal(
        "the claim comes before the fence",
        "ZOMBIE COMMIT",
        Rules(takeover_start=_start_with_fence, takeover_step=_fence_before_claim),
        _quick(),
    ),
    Removal(
        "the claim is read back before the fence",
        "ZOMBIE COMMIT",
        # Reads of `owner` that wait for claims under way would do in its place.
        Rules(takeover_step=_no_read_back, owner_reads=Reads.TO_LAST_STABLE_OFFSET),
        _quick(),
    ),
    Removal(
        "head is read after the fence",
        "ZOMBIE COMMIT",
        Rules(takeover_step=_head_before_fence),
        _quick(),
    ),
    Removal(
        "head is read to the high watermark",
        "DUPLICATE",
        Rules(head_reads=Reads.TO_LAST_STABLE_OFFSET),
        _quick(Fault.REFUSED, Fault.LOST_ANSWER),
    ),
    Removal(
        "head is read before a batch is written again after fenced",
        "DUPLICATE",
        Rules(commit_step=_without_head_read_after(commit.Event.FENCED)),
        _quick(),
    ),
    Removal(
        "head is read before a batch is written again after a lost answer",
        "DUPLICATE",
        Rules(commit_step=_without_head_read_after(commit.Event.UNKNOWN)),
        _quick(Fault.LOST_ANSWER),
    ),
    Removal(
        "a refused send aborts the transaction",
        "INCOMPLETE",
        Rules(commit_step=_ignored_refusal),
        _quick(Fault.REFUSED),
    ),
    Removal(
        "an incarnation carries one transaction",
        "INCOMPLETE",
        Rules(lane_step=_reused_incarnation),
        _quick(Fault.REPEATED_END_TXN, batches=2),
    ),
    Removal(
        "a task that fails ends its transaction",
        "STRAY",
        Rules(repeats_tasks=True),
        replace(_quick(Fault.REFUSED), has_writers=True),
    ),
    Removal(
        "tasks of one job alone write under an epoch",
        "STRAY",
        Rules(lane_step=_reused_incarnation),
        replace(_quick(Fault.REFUSED), has_writers=True),
    ),
    Removal(
        "the driver writes in a transaction of tasks before it commits",
        "SPARK AHEAD",
        Rules(commit_step=_nothing_but_records),
        replace(_quick(), has_writers=True),
    ),
    Removal(
        "mine means the run_id, not the token",
        "DUPLICATE",
        Rules(takeover_step=_mine_by_token),
        _quick(Fault.LOST_ANSWER),
    ),
    Removal(
        "the layout in the ledger never shrinks",
        "ZOMBIE COMMIT",
        Rules(takeover_step=_shrinking_layout),
        replace(_quick(), lanes=(2, 1)),
    ),
    Removal(
        "a batch is judged by its ranges",
        "STATE DIVERGES",
        Rules(batch_proposal=_RangelessProposal),
        replace(SHARED_LOG, runs=3, lanes=1),
    ),
    Removal(
        "a take-over reads owner again before it halts",
        "FALSE HALT",
        Rules(takeover_step=_takeover_halts_at_once),
        _quick(),
    ),
    Removal(
        "a batch reads owner again before it halts",
        "FALSE HALT",
        Rules(commit_start=_commit_halts_at_once),
        _quick(batches=2),
    ),
    Removal(
        "at least once writes records before head",
        "LOST",
        Rules(batch_proposal=_RecordsBehindHead),
        replace(_quick(), delivery=Delivery.AT_LEAST_ONCE),
    ),
    Removal(
        "at most once writes records behind head",
        "EARLY",
        Rules(batch_proposal=_RecordsBeforeHead),
        replace(_quick(), delivery=Delivery.AT_MOST_ONCE),
    ),
    Removal(
        "at most once is finished by the run that committed it",
        "EARLY",
        Rules(batch_proposal=_FinishedByAnybody),
        replace(_quick(Fault.LOST_ANSWER), delivery=Delivery.AT_MOST_ONCE),
    ),
    Removal(
        "a batch is proposed with the plan that Spark runs",
        "FALSE LEDGER",
        Rules(),
        replace(SHARED_LOG, plan_reads=PlanReads.FROM_CHECKPOINT),
    ),
    Removal(
        "a start without ledger and checkpoint looks at the output",
        "REPEATED NUMBER",
        Rules(compare=_outputless_comparison),
        replace(_quick(), begins=Beginning.OUTPUT_ALONE),
    ),
    Removal(
        "a start compares the ledger with the output",
        "REPEATED NUMBER",
        Rules(compare=_outputless_comparison),
        replace(_quick(), begins=Beginning.LEDGER_SET_BACK),
    ),
    Removal(
        "a new generation numbers on from an output that is ahead of the ledger",
        "REPEATED NUMBER",
        Rules(compare=remedied_comparison, new_generation=_generation_after_the_ledger),
        replace(_quick(), begins=Beginning.LEDGER_SET_BACK),
    ),
    Removal(
        "a rebuilt head is that of the newest generation in the output",
        "FALSE HALT",
        Rules(compare=remedied_comparison, last_batch=_batch_of_any_generation),
        replace(_quick(batches=2), begins=Beginning.TWO_GENERATIONS),
    ),
    Removal(
        "a fork begins at the position of its origin",
        "RESET",
        Rules(begun_from=_begun_at_nothing),
        replace(_quick(), begins=Beginning.FORK),
    ),
)
"""Every rule that, taken away, leads to a violation in some world."""

RANGELESS = Removal(
    "source ranges are compared anywhere",
    "INPUT LOST",
    Rules(batch_proposal=_RangelessProposal, compare=_rangeless_comparison),
    replace(SHARED_LOG, runs=3, lanes=1, batches=2),
)
"""Takes longer to find than the others."""

COMPARISONS_THAT_STOP_WORK = (
    Removal("a take-over compares ranges", "", Rules(compare=_rangeless_comparison), SHARED_LOG),
    Removal("a take-over compares clocks", "", Rules(compare=_clockless_comparison), SHARED_LOG),
)
"""Without them nothing wrong is written, but some checkpoint can never be started from again."""

"""The product's state machines, memoised, and the entries that they handle.

The machines are pure, so one step is computed once and looked up ever after. States and entries are
wrapped in objects of which one exists per value: they compare by identity, which is quick, although
the entries inside hold dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from typing import Any, Protocol

from onceflow.protocol import commit, compare, fork, lane, tails, takeover
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import BatchKey, FencingToken, LaneId, Layout
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    RecordCounts,
    SinkState,
    SourceRanges,
)
from onceflow.protocol.proposal import BatchProposal, HeadProposal
from onceflow.protocol.record import BatchOrder, Flag, RecordHeader

QUERY = "query"
SLOT = 0
LINEAGE = 1
_SOURCE, _TOPIC, _PARTITION = "clicks", "input", 0


class Comparing(Protocol):
    """`compare.compare`, without a remedy."""

    def __call__(
        self,
        checkpoint: compare.CheckpointFacts,
        head: HeadEntry | None,
        *,
        written: Mapping[int, RecordHeader] = compare.NOT_WRITTEN,
    ) -> compare.Comparison: ...


class Reads(Enum):
    """How far a read of the ledger goes."""

    TO_HIGH_WATERMARK = auto()
    TO_LAST_STABLE_OFFSET = auto()


@dataclass(frozen=True)
class Rules:
    """The product's decisions. A removal (removals.py) replaces one of them.

    Args:
        lane_step: for a lane that is renewed in the background.
        resettle_step: for a lane that is re-initialised after "fenced" or "unknown".
        owner_reads: how the executor reads `owner` anywhere but in the read-back of a claim.
        head_reads: how it reads `head`.
        repeats_tasks: whether a task that failed is tried again in the same transaction.
    """

    lane_step: Callable[[lane.LanePhase, lane.LaneEvent], lane.LaneStep] = lane.step
    resettle_step: Callable[[lane.LanePhase, lane.LaneEvent], lane.LaneStep] = lane.step
    takeover_start: Callable[[takeover.Claimant], takeover.Step] = takeover.start
    takeover_step: Callable[[takeover.TakeoverState, Any], takeover.Step] = takeover.step
    commit_start: Callable[[commit.Proposal, HeadEntry | None], commit.Step] = commit.start
    commit_step: Callable[[commit.CommitState, Any], commit.Step] = commit.step
    batch_proposal: Callable[[HeadEntry], commit.Proposal] = BatchProposal
    last_batch: Callable[[tails.OutputTails, compare.CheckpointFacts, int], BatchOrder] = (
        tails.last_batch
    )
    new_generation: Callable[[HeadEntry, HeadEntry | None, tails.OutputTails], HeadEntry] = (
        tails.new_generation
    )
    begun_from: Callable[[HeadEntry, HeadEntry], HeadEntry] = fork.begun_from
    compare: Comparing = compare.compare
    owner_reads: Reads = Reads.TO_HIGH_WATERMARK
    head_reads: Reads = Reads.TO_HIGH_WATERMARK
    repeats_tasks: bool = False


class Head:
    """A `head` entry; the same object for the same bytes."""

    def __init__(self, entry: HeadEntry) -> None:
        self.entry = entry
        self.batch = entry.batch.batch_id
        self.input = input_of(entry.plan.sources)
        self.clock = entry.plan.batch_timestamp_ms

    def __repr__(self) -> str:
        if self.batch == NOTHING_COMMITTED:
            return "no batch"
        return f"batch {self.batch} of {self.entry.run_id}, input {range_text(self.input)}"


class Position:
    """Where one machine of one run stands; the same object for the same state.

    Args:
        state: of the machine.
        actions: that the machine asked for when it came here; of two, the first gives a lane back.
        head: what a commit machine's proposal would make of `head`.
    """

    def __init__(self, state: Any, actions: tuple[Any, ...], head: Head | None) -> None:
        self.state = state
        self.phase = state.phase
        self.action: Any = actions[-1] if actions else None
        self.is_lane_released = commit.Action.RELEASE_LANE in actions
        self.head = head

    def __repr__(self) -> str:
        return f"{self.phase.name}, {self.action.name if self.action else 'nothing to do'}"


def ranges(start: int, end: int) -> SourceRanges:
    """One source, one partition."""
    return {_SOURCE: {_TOPIC: {_PARTITION: (start, end)}}}


def input_of(sources: SourceRanges) -> tuple[int, int] | None:
    """Inverse of `ranges`; None for a registration."""
    return sources[_SOURCE][_TOPIC][_PARTITION] if sources else None


def batch_plan(start: int, end: int, clock: int) -> BatchPlan:
    """The plan that Spark pins for a batch."""
    return BatchPlan(ranges(start, end), 0, clock)


def tail(partition_end: int, generation: int, batch_id: int) -> tails.Tail:
    """The end of a partition whose last batch had one record."""
    header = RecordHeader(Flag(0), 0, generation, 0, batch_id, partition_end, LINEAGE)
    return tails.Tail(header, partition_end)


def range_text(bounds: tuple[int, int] | None) -> str:
    """A range for people."""
    return f"[{bounds[0]},{bounds[1]})" if bounds else "none"


@dataclass
class Product:
    """Runs the machines. `used` collects every (phase, event) that a search has executed."""

    rules: Rules
    used: set[tuple[str, str, str]] = field(default_factory=set)
    _heads: dict[bytes, Head] = field(default_factory=dict)
    _positions: dict[tuple[object, ...], Position] = field(default_factory=dict)
    _steps: dict[tuple[object, ...], Position] = field(default_factory=dict)
    _proposals: dict[tuple[Head | None, Head], commit.Proposal] = field(default_factory=dict)

    def head(self, entry: HeadEntry) -> Head:
        """The one object of this entry."""
        return self._heads.setdefault(entry.to_json(), Head(entry))

    def claim_of(self, run: int, lanes: int) -> Position:
        """A run begins to take over."""
        claimant = takeover.Claimant(f"R{run}", "host", 0, Layout(SLOT + 1, lanes))
        return self._position(*self.rules.takeover_start(claimant))

    def take_over(self, at: Position, event: object) -> Position:
        """One step of the take-over machine."""
        key = (at, event)
        if key not in self._steps:
            self._note("takeover", at.phase, event)
            state, actions = self.rules.takeover_step(at.state, event)
            if state.phase is at.phase and at.action:
                actions = (at.action,)  # fencing goes on with the other lanes
            self._steps[key] = self._position(state, actions)
        return self._steps[key]

    def propose_batch(self, entry: Head, current: Head) -> Position:
        """A batch is judged for the first time."""
        proposal = self._proposals.setdefault((None, entry), self.rules.batch_proposal(entry.entry))
        return self._position(*self.rules.commit_start(proposal, current.entry), entry)

    def propose_head(self, entry: Head, current: Head | None) -> Position:
        """A registration is judged for the first time."""
        before = current.entry if current else None
        proposal = self._proposals.setdefault((current, entry), HeadProposal(before, entry.entry))
        return self._position(*self.rules.commit_start(proposal, before), entry)

    def commit(self, at: Position, event: commit.Event) -> Position:
        """One step of the commit machine."""
        key = (at, event)
        if key not in self._steps:
            self._note("commit", at.phase, event)
            step = self.rules.commit_step(at.state, event)
            self._steps[key] = self._position(*step, at.head)
        return self._steps[key]

    def commit_head_read(self, at: Position, head: Head | None) -> Position:
        """One step of the commit machine: `head` was read."""
        key = (at, "head", head)
        if key not in self._steps:
            self._note("commit", at.phase, "HeadRead")
            event = commit.HeadRead(head.entry if head else None)
            self._steps[key] = self._position(*self.rules.commit_step(at.state, event), at.head)
        return self._steps[key]

    def move_lane(
        self, phase: lane.LanePhase, event: lane.LaneEvent, *, is_held: bool
    ) -> tuple[lane.LanePhase, bool]:
        """One step of the lane machine: the phase, and whether the incarnation is discarded."""
        self._note("lane", phase, event)
        step = self.rules.resettle_step if is_held else self.rules.lane_step
        phase, actions = step(phase, event)
        return phase, lane.LaneAction.DISCARD in actions

    def registration(
        self, run: int, token: FencingToken, lanes: int, before: Head | None = None
    ) -> Head:
        """A head without a batch, which goes on where the one before stood."""
        known = before.entry if before else None
        sequence = known.sink.sequence if known else {}
        sink = SinkState("output", 1, Layout(SLOT + 1, lanes), sequence).advanced({})
        return self.head(
            HeadEntry(
                pipeline="pipeline",
                generation=known.generation if known else 1,
                batch=BatchKey(QUERY, NOTHING_COMMITTED),
                token=token,
                run_id=f"R{run}",
                plan=BatchPlan({}, 0, 0),
                sink=sink,
                records=RecordCounts(),
                digest="",
                plan_hash="",
                lineage=LINEAGE,
            )
        )

    def begun_from(self, output: tails.OutputTails, blank: Head, before: Head | None) -> Head:
        """The head of a new generation, which continues the numbering."""
        known = before.entry if before else None
        return self.head(self.rules.new_generation(blank.entry, known, output))

    def of_origin(self, lanes: int) -> Head:
        """Batch 0 of another query, whose checkpoint was copied."""
        blank = self.registration(-1, FencingToken(0), lanes)
        plan = batch_plan(0, 1, clock=-1)
        done = self.successor(blank, Delivery.EXACTLY_ONCE, FencingToken(0), (-1, 0), plan)
        return self.head(replace(done.entry, batch=BatchKey("origin", 0)))

    def copied(self, lanes: int, *, is_fork: bool) -> HeadEntry:
        """The `head` in the copy."""
        done = self.of_origin(lanes).entry
        if is_fork:
            return fork.forked(done, "fork", QUERY, replace(done.sink, sequence={}))
        return fork.moved(done, BatchKey(QUERY, 0), done.plan, "moved")

    def begun_after(self, beginning: HeadEntry, blank: Head) -> Head:
        """The first head of a copy."""
        return self.head(self.rules.begun_from(beginning, blank.entry))

    def rebuilt_from(
        self, output: tails.OutputTails, blank: Head, facts: compare.CheckpointFacts
    ) -> Head:
        """A lost one, made again.

        Raises:
            CorruptionError: output and checkpoint do not fit.
        """
        batch = self.rules.last_batch(output, facts, blank.entry.generation)
        generation, batch_id = batch
        assert facts.plans is not None
        return self.head(
            replace(
                tails.numbered_on(blank.entry, output, batch),
                generation=generation,
                batch=BatchKey(QUERY, batch_id),
                plan=facts.plans[batch_id],
                digest=f"rows of {range_text(input_of(facts.plans[batch_id].sources))}",
                records=RecordCounts(written=1),
            )
        )

    def successor(
        self,
        head: Head,
        delivery: Delivery,
        token: FencingToken,
        key: tuple[int, int],
        plan: BatchPlan,
    ) -> Head:
        """The entry of a batch with one record, as the runtime builds it from the known head."""
        run, batch = key
        entry = replace(
            head.entry,
            batch=BatchKey(QUERY, batch),
            token=token,
            run_id=f"R{run}",
            plan=plan,
            sink=head.entry.sink.advanced({0: 1}),
            records=RecordCounts(written=1),
            digest=f"rows of {range_text(input_of(plan.sources))}",
        )
        return self.head(entry.under(delivery))

    def swapped(self, at: Position) -> Position:
        """The same position with lane 0 and lane 1 renamed into each other."""
        to_fence = getattr(at.state, "to_fence", None)
        if not to_fence:
            return at
        other = frozenset(LaneId(n.slot, 1 - n.lane) for n in to_fence)
        actions = (at.action,) if at.action else ()
        return self._position(replace(at.state, to_fence=other), actions)

    def _position(self, state: Any, actions: tuple[Any, ...], head: Head | None = None) -> Position:
        if isinstance(state, commit.CommitState):
            # The count only leads to FAILED, which acts no more (a crash in disguise): a machine
            # with unlimited attempts does everything that one with five does.
            state = replace(state, attempts=0)
        values = (getattr(state, f.name) for f in fields(state))
        key = (type(state), actions, *(id(v) if hasattr(v, "judge") else v for v in values))
        return self._positions.setdefault(key, Position(state, actions, head))

    def _note(self, machine: str, phase: Enum, event: object) -> None:
        name = event.name if isinstance(event, Enum) else str(event).partition("(")[0]
        self.used.add((machine, phase.name, name))

"""One run of the driver, and what its steps have in common.

The steps themselves (takeover_steps, query_steps, commit_steps, lane_steps) are the runtime's part:
they execute the actions of the product's machines, reduced to what others can see. Each takes the
parts of the world that it may look at and gives every outcome that is possible, as new values of
the same parts. A crash needs no step: a run may stop being scheduled.

What runs together in one step, and why nothing is lost by it: a step may be joined with its
predecessor if no one else can see or disturb it in between. This holds for
- steps of a machine alone, and a lane that is renewed as soon as it is stale;
- handing a message to the network: it arrives, late or never, in a step of its own;
- the beginning of a read right after the answer before it: a later one only sees less old data;
- `head` and offsets right after one another: whatever could come in between, a fence or a
  time-out, leads to the same phase and the same broker as if it came after both. (Records and
  `head` stay apart: a late EndTxn of a reused incarnation may arrive between them.)
- everything that a fenced incarnation sends: it has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from onceflow.protocol import commit, takeover
from onceflow.protocol.identity import FencingToken
from onceflow.protocol.ledger import NOTHING_COMMITTED
from tests.support.explorer.kafka import FOREGROUND, HeadLog, Owner
from tests.support.explorer.product import Head, Position, Product, Reads
from tests.support.explorer.scope import Scope


class Stage(Enum):
    """The work that a run is busy with."""

    TAKING_OVER = auto()
    REGISTERING = auto()
    REPAIRING = auto()
    STARTING = auto()
    PLANNING = auto()
    RENAMING = auto()
    EXECUTING = auto()
    COMMITTING = auto()
    LOGGING = auto()
    FINISHED = auto()
    ENDED = auto()
    """Fenced, failed, refused by Spark, or gave up."""
    HALTED = auto()

    @property
    def is_final(self) -> bool:
        """Whether the run does nothing more."""
        return self in _FINAL


_FINAL = frozenset({Stage.FINISHED, Stage.ENDED, Stage.HALTED})
_WRITTEN = frozenset({commit.Phase.COMMITTED, commit.Phase.SKIPPED})
_ENDINGS = {
    takeover.TakeoverPhase.HALTED: Stage.HALTED,
    takeover.TakeoverPhase.STOPPED: Stage.ENDED,
    takeover.TakeoverPhase.GAVE_UP: Stage.ENDED,
    commit.Phase.HALTED: Stage.HALTED,
    commit.Phase.STOPPED: Stage.ENDED,
    commit.Phase.FAILED: Stage.ENDED,
    commit.Phase.LOST: Stage.ENDED,
}


class Run(NamedTuple):
    """One run.

    Args:
        at: position of the take-over or commit machine; None between two machines.
        is_sent: the outstanding claim is sent; its answer is awaited.
        head: newest `head` that the run knows; None where it is not used any more.
        batch, start, end: what Spark runs, with the input that its rows are made from.
    """

    number: int
    stage: Stage
    at: Position | None = None
    is_sent: bool = False
    head: Head | None = None
    token: FencingToken = FencingToken(0)
    batch: int = NOTHING_COMMITTED
    start: int = 0
    end: int = 0

    @property
    def position(self) -> Position:
        """Where its machine stands."""
        assert self.at is not None
        return self.at

    def ended(self, stage: Stage = Stage.ENDED) -> Run:
        """The run does nothing more."""
        return Run(self.number, stage)

    def __str__(self) -> str:
        return f"R{self.number}"


class Scene(NamedTuple):
    """A run and what every step of a machine may touch."""

    run: Run
    owner: Owner
    heads: HeadLog


class Outcome(NamedTuple):
    """One possible result of a step.

    Args:
        label: for a printed trace.
        parts: new values of the parts that the step was given, in the same order.
        violation: of a check, if there is one.
    """

    label: str
    parts: tuple[object, ...]
    violation: str | None = None


Outcomes: TypeAlias = Iterator[Outcome]


@dataclass(frozen=True)
class Executor:
    """Executes actions for every run of a search."""

    scope: Scope
    product: Product

    def can_read_owner(self, run: int, lane: int, owner: Owner) -> bool:
        """Whether a read of `owner` that this reader has begun can be answered."""
        is_patient = self.product.rules.owner_reads is Reads.TO_HIGH_WATERMARK
        return owner.can_read(run, lane) or not is_patient

    def can_read_head(self, run: int, heads: HeadLog) -> bool:
        """The same for `head`."""
        is_patient = self.product.rules.head_reads is Reads.TO_HIGH_WATERMARK
        return heads.can_read(run) or not is_patient

    def go(self, at: Position, scene: Scene) -> Scene:
        """Bring a run to the next position of its machine, and begin the read it asks for."""
        run, owner, heads = scene
        if at.phase in _ENDINGS:
            return scene._replace(run=run.ended(_ENDINGS[at.phase]))
        if at.phase is takeover.TakeoverPhase.OWNED:
            return scene._replace(run=run._replace(at=None, token=at.state.claim.token))
        if at.phase in _WRITTEN:
            if at.phase is commit.Phase.COMMITTED:
                assert at.head is not None
                entry = at.head.entry
                is_batch = run.stage is Stage.COMMITTING
                known = entry.known_to_be_written() if is_batch else entry
                run = run._replace(head=self.product.head(known))
            stage = Stage.LOGGING if run.stage is Stage.COMMITTING else Stage.STARTING
            return scene._replace(run=run._replace(stage=stage, at=None))
        if at.action in (takeover.TakeoverAction.READ_OWNER, commit.Action.READ_OWNER):
            owner = owner.read_begun(run.number, FOREGROUND)
        if at.action in (takeover.TakeoverAction.READ_HEAD, commit.Action.READ_HEAD):
            heads = heads.read_begun(run.number)
        if run.stage is not Stage.TAKING_OVER:
            run = run._replace(head=None)  # from here it is read again, or replaced
        return Scene(run._replace(at=at), owner, heads)

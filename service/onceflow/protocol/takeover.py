"""Taking over a pipeline as a pure state machine (protocol, section 3).

    INITIALISING ─ READING_PREVIOUS ─ CLAIMING ─ READING_BACK ─ FENCING ─ CONFIRMING_OWNER
        ─ READING_HEAD ─ COMPARING ─► OWNED            (go on with the decision of `compare`)
                            └─ CONFIRMING_HALT ─► HALTED or STOPPED
    not mine, or fenced, anywhere: STOPPED        no answer in time, anywhere: GAVE_UP

The order is the proof: a claim is not followed by a fence before a read_committed read has
returned it, `head` is not read before every lane is fenced and `owner` is still ours, and the
checkpoint is read last. A machine serves one attempt, with one run_id; a further attempt is a new
machine with a new run_id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from onceflow.errors import InvariantError
from onceflow.protocol.identity import FencingToken, LaneId, Layout
from onceflow.protocol.ledger import OwnerEntry

FIRST_TOKEN = FencingToken(1)


class TakeoverPhase(Enum):
    """The steps of a take-over."""

    INITIALISING = auto()
    READING_PREVIOUS = auto()
    CLAIMING = auto()
    READING_BACK = auto()
    FENCING = auto()
    CONFIRMING_OWNER = auto()
    READING_HEAD = auto()
    COMPARING = auto()
    CONFIRMING_HALT = auto()
    OWNED = auto()
    HALTED = auto()
    STOPPED = auto()
    GAVE_UP = auto()

    @property
    def is_final(self) -> bool:
        """Whether the attempt has ended."""
        return self in _FINAL


_FINAL = frozenset(
    {TakeoverPhase.OWNED, TakeoverPhase.HALTED, TakeoverPhase.STOPPED, TakeoverPhase.GAVE_UP}
)


class TakeoverAction(Enum):
    """The next thing for the runtime to do."""

    INITIALISE_OWNER = auto()
    """`init_transactions` of a fresh incarnation of the owner id."""
    READ_OWNER = auto()
    WRITE_CLAIM = auto()
    """Begin, send `CommitState.claim` as `owner`, commit."""
    FENCE_LANES = auto()
    """`init_transactions` on every lane of `TakeoverState.to_fence`, in any order."""
    READ_HEAD = auto()
    """To the high watermark."""
    COMPARE = auto()
    """Read the checkpoint and compare it with `head`."""


class TakeoverEvent(Enum):
    """The result of an action."""

    DONE = auto()
    FENCED = auto()
    UNKNOWN = auto()
    """The claim's commit was not answered, or its answer proves nothing."""
    TIMED_OUT = auto()
    """No answer in time; nothing follows from that."""
    GO_ON = auto()
    """The comparison allows a start."""
    HALT = auto()
    """The comparison refuses a start."""


@dataclass(frozen=True)
class OwnerRead:
    """READ_OWNER came back."""

    owner: OwnerEntry | None


@dataclass(frozen=True)
class LaneFenced:
    """One lane of FENCE_LANES is initialised: its older transactions are decided."""

    lane: LaneId


@dataclass(frozen=True)
class Claimant:
    """The driver that takes over.

    Args:
        run_id: a new uuid for each attempt.
        host, started_at_ms: for people.
        layout: the lanes that this driver will use.
    """

    run_id: str
    host: str
    started_at_ms: int
    layout: Layout


@dataclass(frozen=True)
class TakeoverState:
    """One attempt on its way.

    Args:
        claim: the entry to write and to find again; None before `owner` was read.
        to_fence: lanes that are not yet fenced; every lane that any owner has ever used.
    """

    phase: TakeoverPhase
    claimant: Claimant
    claim: OwnerEntry | None = None
    to_fence: frozenset[LaneId] = frozenset()


Step: TypeAlias = tuple[TakeoverState, tuple[TakeoverAction, ...]]


def start(claimant: Claimant) -> Step:
    """Begin an attempt."""
    return TakeoverState(TakeoverPhase.INITIALISING, claimant), (TakeoverAction.INITIALISE_OWNER,)


def is_mine(owner: OwnerEntry | None, run_id: str) -> bool:
    """Whether `owner` was written by this attempt. Tokens decide nothing."""
    return owner is not None and owner.run_id == run_id


def step(state: TakeoverState, event: TakeoverEvent | OwnerRead | LaneFenced) -> Step:
    """Next state and what to do.

    Raises:
        InvariantError: `event` cannot happen in this phase.
    """
    if isinstance(event, OwnerRead) and state.phase in _ON_OWNER_READ:
        return _ON_OWNER_READ[state.phase](state, event.owner)
    if isinstance(event, LaneFenced) and state.phase is TakeoverPhase.FENCING:
        return _fenced_one(state, event.lane)
    if isinstance(event, TakeoverEvent) and (state.phase, event) in TRANSITIONS:
        phase, actions = TRANSITIONS[state.phase, event]
        return replace(state, phase=phase), actions
    raise InvariantError(
        "impossible event for a take-over", subject=state.phase.name, found=str(event)
    )


def _claim(state: TakeoverState, previous: OwnerEntry | None) -> Step:
    me = state.claimant
    claim = OwnerEntry(
        token=FencingToken(previous.token + 1) if previous else FIRST_TOKEN,
        run_id=me.run_id,
        host=me.host,
        started_at_ms=me.started_at_ms,
        max_layout=me.layout.covering(previous.max_layout) if previous else me.layout,
    )
    return replace(state, phase=TakeoverPhase.CLAIMING, claim=claim), (TakeoverAction.WRITE_CLAIM,)


def _read_back(state: TakeoverState, owner: OwnerEntry | None) -> Step:
    if owner is None or owner != state.claim:
        return replace(state, phase=TakeoverPhase.STOPPED), ()
    lanes = frozenset(owner.max_layout.lane_ids())
    return replace(state, phase=TakeoverPhase.FENCING, to_fence=lanes), (
        TakeoverAction.FENCE_LANES,
    )


def _fenced_one(state: TakeoverState, lane: LaneId) -> Step:
    state = replace(state, to_fence=state.to_fence - {lane})
    if state.to_fence:
        return state, ()
    return replace(state, phase=TakeoverPhase.CONFIRMING_OWNER), (TakeoverAction.READ_OWNER,)


def _confirm(
    mine: TakeoverPhase, *actions: TakeoverAction
) -> Callable[[TakeoverState, OwnerEntry | None], Step]:
    def confirmed(state: TakeoverState, owner: OwnerEntry | None) -> Step:
        if is_mine(owner, state.claimant.run_id):
            return replace(state, phase=mine), actions
        return replace(state, phase=TakeoverPhase.STOPPED), ()

    return confirmed


_ON_OWNER_READ: Mapping[TakeoverPhase, Callable[[TakeoverState, OwnerEntry | None], Step]] = {
    TakeoverPhase.READING_PREVIOUS: _claim,
    TakeoverPhase.READING_BACK: _read_back,
    TakeoverPhase.CONFIRMING_OWNER: _confirm(TakeoverPhase.READING_HEAD, TakeoverAction.READ_HEAD),
    TakeoverPhase.CONFIRMING_HALT: _confirm(TakeoverPhase.HALTED),
}

_P, _E, _A = TakeoverPhase, TakeoverEvent, TakeoverAction
TRANSITIONS: Mapping[
    tuple[TakeoverPhase, TakeoverEvent], tuple[TakeoverPhase, tuple[TakeoverAction, ...]]
] = {
    (_P.INITIALISING, _E.DONE): (_P.READING_PREVIOUS, (_A.READ_OWNER,)),
    (_P.INITIALISING, _E.FENCED): (_P.STOPPED, ()),
    (_P.CLAIMING, _E.DONE): (_P.READING_BACK, (_A.READ_OWNER,)),
    # Neither answer says that the claim was not committed: only the read-back decides.
    (_P.CLAIMING, _E.UNKNOWN): (_P.READING_BACK, (_A.READ_OWNER,)),
    (_P.CLAIMING, _E.FENCED): (_P.STOPPED, ()),
    (_P.READING_HEAD, _E.DONE): (_P.COMPARING, (_A.COMPARE,)),
    (_P.COMPARING, _E.GO_ON): (_P.OWNED, ()),
    (_P.COMPARING, _E.HALT): (_P.CONFIRMING_HALT, (_A.READ_OWNER,)),
    **{(phase, _E.TIMED_OUT): (_P.GAVE_UP, ()) for phase in TakeoverPhase if not phase.is_final},
}
"""Every possible pair of phase and plain event; `OwnerRead` and `LaneFenced` have their own."""

"""The commit protocol as a pure state machine: where it is decided whether a batch is written.

`judge` (of a `Proposal`) is the commit decision. `start` and `step` lead one proposal from that
decision to its end; the runtime executes the actions and reports what happened, nothing else.

    start ── judge ─┬─ SKIP ──────────────────────────────────────────────► SKIPPED
                    ├─ HALT, DIVERGED ─ CONFIRMING_HALT ─(mine)─► HALTED   (not mine)─► STOPPED
                    └─ WRITE ─ AWAITING_LANE ─ the route of its mode ─► COMMITTED
           refused before commit: └─ ABORTING ─► (attempts used up, or for good) FAILED
           refused after it:  LOST
           fenced: CONFIRMING_OWNER ─(not mine)─► STOPPED
           fenced and mine, or outcome unknown: RESETTLING ─ READING_HEAD ─► judge again
                               (committed by this run after all: what is left of the route)

A delivery mode is its route, the order of the phases from BEGINNING on; see `ROUTES`. All else is
the same for every mode. After "fenced" or "unknown" the commit may have happened: nothing is
written until the lane was initialised again and `head` was read. A refusal that comes back from
the commit itself counts as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol, TypeAlias

from onceflow.errors import InvariantError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.ledger import HeadEntry

MAX_ATTEMPTS = 5
"""Transactions tried for one proposal. More refusals in a row will not pass by themselves."""


class Verdict(Enum):
    """The answer to a proposal, given `head`."""

    WRITE = auto()
    SKIP = auto()
    """It is committed already."""
    FINISH = auto()
    """It is committed already, by this very run."""
    DIVERGED = auto()
    """It is committed already, with the same plan and other rows."""
    HALT = auto()
    """Checkpoint and ledger contradict each other."""


@dataclass(frozen=True)
class Judgement:
    """A verdict and, for DIVERGED and HALT, what the ledger demands and the proposal says."""

    verdict: Verdict
    expected: str = ""
    found: str = ""


class Proposal(Protocol):
    """Something that wants to become the next `head`."""

    @property
    def delivery(self) -> Delivery:
        """The mode in which it is written."""

    def judge(self, head: HeadEntry | None) -> Judgement:
        """Compare with the position of the ledger. Pure."""


class Phase(Enum):
    """Where a proposal is on its way."""

    AWAITING_LANE = auto()
    BEGINNING = auto()
    SENDING_RECORDS = auto()
    """In the transaction."""
    APPENDING_BEFORE = auto()
    """Records are written outside the transaction; it is begun, which is local, and empty."""
    SENDING_HEAD = auto()
    SENDING_OFFSETS = auto()
    COMMITTING = auto()
    APPENDING_AFTER = auto()
    """Records are written outside the transaction, which is committed."""
    ABORTING = auto()
    CONFIRMING_OWNER = auto()
    RESETTLING = auto()
    READING_HEAD = auto()
    CONFIRMING_HALT = auto()
    COMMITTED = auto()
    SKIPPED = auto()
    HALTED = auto()
    STOPPED = auto()
    FAILED = auto()
    """Refused; not committed."""
    LOST = auto()
    """Committed; its records were refused, in whole or in part, and are not written again."""

    @property
    def is_final(self) -> bool:
        """Whether the proposal has ended."""
        return self in _FINAL


_FINAL = frozenset(
    {Phase.COMMITTED, Phase.SKIPPED, Phase.HALTED, Phase.STOPPED, Phase.FAILED, Phase.LOST}
)

_P = Phase
ROUTES: Mapping[Delivery, tuple[Phase, ...]] = {
    Delivery.EXACTLY_ONCE: (
        _P.BEGINNING, _P.SENDING_RECORDS, _P.SENDING_HEAD, _P.SENDING_OFFSETS, _P.COMMITTING,
    ),
    Delivery.AT_LEAST_ONCE: (
        _P.BEGINNING, _P.APPENDING_BEFORE, _P.SENDING_HEAD, _P.SENDING_OFFSETS, _P.COMMITTING,
    ),
    Delivery.AT_MOST_ONCE: (
        _P.BEGINNING, _P.SENDING_HEAD, _P.SENDING_OFFSETS, _P.COMMITTING, _P.APPENDING_AFTER,
    ),
}  # fmt: skip
"""The phases of a batch that is written. Modes differ in when the records are sent."""


class Action(Enum):
    """The next thing for the runtime to do.

    One answer is outstanding until the proposal has ended; only RELEASE_LANE, which may go before
    another action or end the proposal, has none.
    """

    ACQUIRE_LANE = auto()
    """Take a READY lane. Answer: LANE_GRANTED or LANE_FENCED."""
    BEGIN = auto()
    SEND_RECORDS = auto()
    APPEND_RECORDS = auto()
    """Outside any transaction, until every one of them is acknowledged."""
    SEND_HEAD = auto()
    SEND_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()
    """Abort and release the lane."""
    READ_OWNER = auto()
    RESETTLE_LANE = auto()
    """Release the lane and lead it to READY again, which decides its transaction."""
    READ_HEAD = auto()
    """To the high watermark."""
    RELEASE_LANE = auto()
    """No answer is due."""


class Event(Enum):
    """The result of an action."""

    LANE_GRANTED = auto()
    DONE = auto()
    REFUSED = auto()
    """An open transaction must be aborted; trying again may help."""
    REFUSED_FOR_GOOD = auto()
    """An open transaction must be aborted; trying again cannot help."""
    FENCED = auto()
    UNKNOWN = auto()
    """No answer to a commit, or one that proves nothing."""
    OWNER_IS_MINE = auto()
    OWNER_IS_NOT_MINE = auto()
    LANE_READY = auto()
    LANE_FENCED = auto()


@dataclass(frozen=True)
class HeadRead:
    """READ_HEAD came back with the ledger's position."""

    head: HeadEntry | None


@dataclass(frozen=True)
class CommitState:
    """One proposal on its way.

    Args:
        attempts: transactions begun so far.
        judgement: of the newest `head` that was read.
        is_refused_for_good: unless it turns out to be committed, the proposal ends in FAILED
            whatever attempts are left.
    """

    phase: Phase
    proposal: Proposal
    attempts: int
    judgement: Judgement
    is_refused_for_good: bool = False


Step: TypeAlias = tuple[CommitState, tuple[Action, ...]]


def start(proposal: Proposal, head: HeadEntry | None) -> Step:
    """Judge a proposal against a `head` that this driver knows to be current."""
    judgement = proposal.judge(head)
    state = CommitState(Phase.READING_HEAD, proposal, 0, judgement)
    if judgement.verdict is Verdict.FINISH:
        return _skip(state)  # What this run knows to have committed, it has also finished.
    return _JUDGED[judgement.verdict](state)


def step(state: CommitState, event: Event | HeadRead) -> Step:
    """Next state and what to do.

    Raises:
        InvariantError: `event` cannot happen in this phase.
    """
    if isinstance(event, HeadRead):
        if state.phase is not Phase.READING_HEAD:
            raise _impossible(state, "HeadRead")
        judgement = state.proposal.judge(event.head)
        return _JUDGED[judgement.verdict](replace(state, judgement=judgement))
    if (state.phase, event) not in TRANSITIONS:
        raise _impossible(state, event.name)
    return TRANSITIONS[state.phase, event](state)


def _impossible(state: CommitState, event: str) -> InvariantError:
    return InvariantError("impossible event for a commit", subject=state.phase.name, found=event)


def _next_attempt(state: CommitState) -> Step:
    if state.is_refused_for_good or state.attempts == MAX_ATTEMPTS:
        return replace(state, phase=Phase.FAILED), ()
    return replace(state, phase=Phase.AWAITING_LANE), (Action.ACQUIRE_LANE,)


def _begin(state: CommitState) -> Step:
    return replace(state, phase=Phase.BEGINNING, attempts=state.attempts + 1), (Action.BEGIN,)


def _go_on(state: CommitState, *before: Action) -> Step:
    """To the next phase of the route, or to its end."""
    route = ROUTES[state.proposal.delivery]
    rest = route[route.index(state.phase) + 1 :]
    if not rest:
        return replace(state, phase=Phase.COMMITTED), before
    return replace(state, phase=rest[0]), (*before, _ASKED[rest[0]])


def _committed(state: CommitState) -> Step:
    return _go_on(state, Action.RELEASE_LANE)


def _finish(state: CommitState) -> Step:
    """As after COMMITTING, but RESETTLE_LANE has released the lane already."""
    return _go_on(replace(state, phase=Phase.COMMITTING))


def _abort_for_good(state: CommitState) -> Step:
    return replace(state, phase=Phase.ABORTING, is_refused_for_good=True), (Action.ABORT,)


def _resettle_for_good(state: CommitState) -> Step:
    return replace(state, phase=Phase.RESETTLING, is_refused_for_good=True), (Action.RESETTLE_LANE,)


_Move: TypeAlias = Callable[[CommitState], Step]


def _to(phase: Phase, *actions: Action) -> _Move:
    return lambda state: (replace(state, phase=phase), actions)


_abort = _to(Phase.ABORTING, Action.ABORT)
# Look before initialising again: a fenced zombie that re-initialised first would fence its
# healthy successor for nothing.
_confirm_owner = _to(Phase.CONFIRMING_OWNER, Action.READ_OWNER)
_resettle = _to(Phase.RESETTLING, Action.RESETTLE_LANE)
_confirm_halt = _to(Phase.CONFIRMING_HALT, Action.READ_OWNER)
_stop = _to(Phase.STOPPED)
_lose = _to(Phase.LOST)
_skip = _to(Phase.SKIPPED)
_E = Event

_ASKED: Mapping[Phase, Action] = {
    Phase.SENDING_RECORDS: Action.SEND_RECORDS,
    Phase.APPENDING_BEFORE: Action.APPEND_RECORDS,
    Phase.SENDING_HEAD: Action.SEND_HEAD,
    Phase.SENDING_OFFSETS: Action.SEND_OFFSETS,
    Phase.COMMITTING: Action.COMMIT,
    Phase.APPENDING_AFTER: Action.APPEND_RECORDS,
}

_JUDGED: Mapping[Verdict, _Move] = {
    Verdict.WRITE: _next_attempt,
    Verdict.SKIP: _skip,
    Verdict.FINISH: _finish,
    # Another driver may have moved `head`; then we are fenced and nothing is corrupt.
    Verdict.DIVERGED: _confirm_halt,
    Verdict.HALT: _confirm_halt,
}

_SENT: Mapping[tuple[Phase, Event], _Move] = {
    (phase, event): move
    for phase in (Phase.SENDING_RECORDS, Phase.SENDING_HEAD, Phase.SENDING_OFFSETS)
    for event, move in (
        (_E.DONE, _go_on),
        (_E.REFUSED, _abort),
        (_E.REFUSED_FOR_GOOD, _abort_for_good),
        (_E.FENCED, _confirm_owner),
    )
}
"""After anything was sent in the transaction."""

TRANSITIONS: Mapping[tuple[Phase, Event], _Move] = {
    (Phase.AWAITING_LANE, _E.LANE_GRANTED): _begin,
    (Phase.AWAITING_LANE, _E.LANE_FENCED): _stop,
    (Phase.BEGINNING, _E.DONE): _go_on,
    (Phase.BEGINNING, _E.REFUSED): _abort,
    (Phase.BEGINNING, _E.FENCED): _confirm_owner,
    **_SENT,
    (Phase.APPENDING_BEFORE, _E.DONE): _go_on,
    (Phase.APPENDING_BEFORE, _E.REFUSED): _abort,
    (Phase.APPENDING_BEFORE, _E.REFUSED_FOR_GOOD): _abort_for_good,
    (Phase.COMMITTING, _E.DONE): _committed,
    (Phase.COMMITTING, _E.REFUSED): _resettle,
    (Phase.COMMITTING, _E.REFUSED_FOR_GOOD): _resettle_for_good,
    (Phase.COMMITTING, _E.UNKNOWN): _resettle,
    (Phase.COMMITTING, _E.FENCED): _confirm_owner,
    # What was appended of it would be appended again.
    (Phase.APPENDING_AFTER, _E.DONE): _go_on,
    (Phase.APPENDING_AFTER, _E.REFUSED): _lose,
    (Phase.APPENDING_AFTER, _E.REFUSED_FOR_GOOD): _lose,
    (Phase.ABORTING, _E.DONE): _next_attempt,
    (Phase.CONFIRMING_OWNER, _E.OWNER_IS_MINE): _resettle,
    (Phase.CONFIRMING_OWNER, _E.OWNER_IS_NOT_MINE): _stop,
    (Phase.RESETTLING, _E.LANE_READY): _to(Phase.READING_HEAD, Action.READ_HEAD),
    (Phase.RESETTLING, _E.LANE_FENCED): _stop,
    (Phase.CONFIRMING_HALT, _E.OWNER_IS_MINE): _to(Phase.HALTED),
    (Phase.CONFIRMING_HALT, _E.OWNER_IS_NOT_MINE): _stop,
}
"""Every possible pair; `HeadRead` is possible in READING_HEAD alone."""

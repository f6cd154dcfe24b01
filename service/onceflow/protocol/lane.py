"""The life of one lane: from `init_transactions` to its one transaction, and again.

The rule of protocol section 2 lives here and nowhere else: after every initialisation, `owner` is
read, and until it says "mine" the lane is not ready. Without it a driver that was stopped between
its claim and its fence would fence its successor and then commit a batch a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from onceflow.errors import InvariantError


class LanePhase(Enum):
    """Where a lane is in its life."""

    STALE = auto()
    """Has no usable incarnation: never initialised, or its transaction is used up."""
    INITIALISING = auto()
    """`init_transactions` is under way."""
    UNCONFIRMED = auto()
    """Initialised; `owner` has not been read since."""
    READY = auto()
    """Initialised, and `owner` said "mine" afterwards."""
    BUSY = auto()
    """Carries a transaction."""
    FENCED = auto()
    """`owner` names another driver: this one must stop."""


class LaneEvent(Enum):
    """Something that happens to a lane."""

    RENEWED = auto()
    """The lane is to become ready."""
    INITIALISED = auto()
    INITIALISE_FAILED = auto()
    """No answer, or an error: the id may have been fenced all the same."""
    OWNER_IS_MINE = auto()
    OWNER_IS_NOT_MINE = auto()
    OWNER_UNREADABLE = auto()
    TAKEN = auto()
    RELEASED = auto()
    """The transaction ended, whichever way."""


class LaneAction(Enum):
    """The next thing to do for a lane."""

    INITIALISE = auto()
    """With a fresh incarnation."""
    READ_OWNER = auto()
    """Beginning after the initialisation returned."""
    DISCARD = auto()
    """Drop the incarnation."""
    STOP = auto()
    """Stop the driver: write nothing, abort nothing."""


_P, _E, _A = LanePhase, LaneEvent, LaneAction
LaneStep: TypeAlias = tuple[LanePhase, tuple[LaneAction, ...]]
TRANSITIONS: Mapping[tuple[LanePhase, LaneEvent], LaneStep] = {
    (_P.STALE, _E.RENEWED): (_P.INITIALISING, (_A.INITIALISE,)),
    (_P.INITIALISING, _E.INITIALISED): (_P.UNCONFIRMED, (_A.READ_OWNER,)),
    (_P.INITIALISING, _E.INITIALISE_FAILED): (_P.STALE, (_A.DISCARD,)),
    (_P.UNCONFIRMED, _E.OWNER_IS_MINE): (_P.READY, ()),
    (_P.UNCONFIRMED, _E.OWNER_IS_NOT_MINE): (_P.FENCED, (_A.STOP,)),
    (_P.UNCONFIRMED, _E.OWNER_UNREADABLE): (_P.STALE, (_A.DISCARD,)),
    (_P.READY, _E.TAKEN): (_P.BUSY, ()),
    (_P.BUSY, _E.RELEASED): (_P.STALE, (_A.DISCARD,)),
}
"""Every possible pair. A pair that is not listed cannot happen."""


def step(phase: LanePhase, event: LaneEvent) -> LaneStep:
    """Next phase and what to do.

    Raises:
        InvariantError: `event` cannot happen in `phase`.
    """
    if (phase, event) not in TRANSITIONS:
        raise InvariantError("impossible event for a lane", subject=phase.name, found=event.name)
    return TRANSITIONS[phase, event]

"""The lane machine: every pair of phase and event is one of these, or a bug."""

from __future__ import annotations

from itertools import product

import pytest

from onceflow.errors import InvariantError
from onceflow.protocol.lane import TRANSITIONS, LaneAction, LaneEvent, LanePhase, step

P, E, A = LanePhase, LaneEvent, LaneAction
TABLE = {
    (P.STALE, E.RENEWED): (P.INITIALISING, A.INITIALISE),
    (P.INITIALISING, E.INITIALISED): (P.UNCONFIRMED, A.READ_OWNER),
    (P.INITIALISING, E.INITIALISE_FAILED): (P.STALE, A.DISCARD),
    (P.UNCONFIRMED, E.OWNER_IS_MINE): (P.READY, None),
    (P.UNCONFIRMED, E.OWNER_IS_NOT_MINE): (P.FENCED, A.STOP),
    (P.UNCONFIRMED, E.OWNER_UNREADABLE): (P.STALE, A.DISCARD),
    (P.READY, E.TAKEN): (P.BUSY, None),
    (P.BUSY, E.RELEASED): (P.STALE, A.DISCARD),
}


@pytest.mark.parametrize(("phase", "event"), [*product(P, E)])
def test_every_pair_is_listed_or_impossible(phase: LanePhase, event: LaneEvent) -> None:
    if (phase, event) in TABLE:
        after, action = TABLE[phase, event]
        assert step(phase, event) == (after, () if action is None else (action,))
    else:
        with pytest.raises(InvariantError, match=event.name):
            step(phase, event)


def test_the_table_holds_nothing_else() -> None:
    assert set(TRANSITIONS) == set(TABLE)


def test_only_a_read_of_owner_leads_to_ready() -> None:
    ways = {event for (_, event), (after, _) in TRANSITIONS.items() if after is P.READY}
    assert ways == {E.OWNER_IS_MINE}


def test_only_an_initialisation_leads_to_a_read_of_owner() -> None:
    ways = {event for (_, event), (after, _) in TRANSITIONS.items() if after is P.UNCONFIRMED}
    assert ways == {E.INITIALISED}

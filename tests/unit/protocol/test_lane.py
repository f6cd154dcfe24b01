"""The lane machine: what leads to a lane that may carry a batch."""

from __future__ import annotations

from itertools import product

import pytest

from onceflow.errors import InvariantError
from onceflow.protocol.lane import TRANSITIONS, LaneAction, LaneEvent, LanePhase, step

P, E, A = LanePhase, LaneEvent, LaneAction


def test_an_event_that_cannot_happen_is_a_bug() -> None:
    """The explorer shows what can happen, and that each entry is needed."""
    for phase, event in {*product(P, E)} - set(TRANSITIONS):
        with pytest.raises(InvariantError, match=event.name):
            step(phase, event)


def test_only_a_read_of_owner_leads_to_ready() -> None:
    ways = {event for (_, event), (after, _) in TRANSITIONS.items() if after is P.READY}
    assert ways == {E.OWNER_IS_MINE}


def test_only_an_initialisation_leads_to_a_read_of_owner() -> None:
    ways = {event for (_, event), (after, _) in TRANSITIONS.items() if after is P.UNCONFIRMED}
    assert ways == {E.INITIALISED}

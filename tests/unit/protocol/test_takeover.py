"""The take-over machine: the paths that matter, and that nothing else is possible."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from onceflow.errors import InvariantError
from onceflow.protocol.identity import FencingToken, LaneId, Layout
from onceflow.protocol.ledger import OwnerEntry
from onceflow.protocol.takeover import (
    TRANSITIONS,
    Claimant,
    LaneFenced,
    OwnerRead,
    TakeoverAction,
    TakeoverEvent,
    TakeoverPhase,
    TakeoverState,
    is_mine,
    start,
    step,
)

ME = Claimant("me", "host-1", 1000, Layout(1, 2))
MINE = OwnerEntry(FencingToken(8), "me", "host-1", 1000, Layout(1, 3))
THEIRS = OwnerEntry(FencingToken(7), "they", "host-2", 900, Layout(1, 3))
LANES = frozenset(MINE.max_layout.lane_ids())

P, E, A = TakeoverPhase, TakeoverEvent, TakeoverAction
OWNER_READS = (P.READING_PREVIOUS, P.READING_BACK, P.CONFIRMING_OWNER, P.CONFIRMING_HALT)


def at(phase: TakeoverPhase) -> TakeoverState:
    return TakeoverState(phase, ME, MINE, LANES)


def test_an_event_that_cannot_happen_is_a_bug() -> None:
    """The explorer shows what can happen, and that each entry is needed."""
    for phase, event in {*product(P, E)} - set(TRANSITIONS):
        with pytest.raises(InvariantError, match=phase.name):
            step(at(phase), event)
    for phase in {*P} - {*OWNER_READS}:
        with pytest.raises(InvariantError, match=phase.name):
            step(at(phase), OwnerRead(MINE))
    for phase in {*P} - {P.FENCING}:
        with pytest.raises(InvariantError, match=phase.name):
            step(at(phase), LaneFenced(LaneId(0, 0)))


@pytest.mark.parametrize("owner", [None, THEIRS, replace(MINE, run_id="they")])
def test_a_driver_that_reads_another_owner_stops(owner: OwnerEntry | None) -> None:
    """The token does not count: the last of these has ours."""
    assert is_mine(MINE, "me")
    assert not is_mine(owner, "me")
    for phase in OWNER_READS[1:]:
        state, asked = step(at(phase), OwnerRead(owner))
        assert (state.phase, asked) == (P.STOPPED, ())


def test_a_take_over_that_is_not_disturbed() -> None:
    state, asked = start(ME)
    assert (state, asked) == (TakeoverState(P.INITIALISING, ME), (A.INITIALISE_OWNER,))
    phases = [state.phase]
    answers: list[TakeoverEvent | OwnerRead | LaneFenced] = [
        *(E.DONE, OwnerRead(THEIRS), E.DONE, OwnerRead(MINE)),
        *map(LaneFenced, LANES),
        *(OwnerRead(MINE), E.DONE, E.GO_ON),
    ]
    for answer in answers:
        state, asked = step(state, answer)
        phases.append(state.phase)
    assert [*dict.fromkeys(phases)] == [
        P.INITIALISING,
        P.READING_PREVIOUS,
        P.CLAIMING,
        P.READING_BACK,
        P.FENCING,
        P.CONFIRMING_OWNER,
        P.READING_HEAD,
        P.COMPARING,
        P.OWNED,
    ]
    assert asked == ()


@pytest.mark.parametrize(
    ("before", "token", "claimed"),
    [
        (None, 1, Layout(1, 2)),
        (Layout(1, 3), 8, Layout(1, 3)),
        (Layout(2, 1), 8, Layout(2, 2)),
        (Layout(1, 1), 8, Layout(1, 2)),
    ],
)
def test_a_claim_follows_the_previous_one_and_never_shrinks(
    before: Layout | None, token: int, claimed: Layout
) -> None:
    previous = replace(THEIRS, max_layout=before) if before else None
    state, _ = step(TakeoverState(P.READING_PREVIOUS, ME), OwnerRead(previous))
    assert state.claim == OwnerEntry(FencingToken(token), "me", "host-1", 1000, claimed)


def test_every_lane_that_any_owner_has_used_is_fenced() -> None:
    state, _ = step(TakeoverState(P.READING_BACK, ME, MINE), OwnerRead(MINE))
    assert state.to_fence == {LaneId(0, 0), LaneId(0, 1), LaneId(0, 2)}


def test_an_ended_attempt_asks_for_nothing() -> None:
    final = {phase for phase in P if phase.is_final}
    assert final == {P.OWNED, P.HALTED, P.STOPPED, P.GAVE_UP}
    assert not {phase for phase, _ in TRANSITIONS if phase in final}

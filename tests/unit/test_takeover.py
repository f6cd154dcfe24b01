"""The take-over machine: every pair of phase and event is one of these, or a bug."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from onceflow.errors import InvariantError
from onceflow.protocol.identity import FencingToken, LaneId, Layout
from onceflow.protocol.ledger import OwnerEntry
from onceflow.protocol.takeover import (
    FIRST_TOKEN,
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
TABLE: dict[tuple[TakeoverPhase, TakeoverEvent], tuple[TakeoverPhase, TakeoverAction | None]] = {
    (P.INITIALISING, E.DONE): (P.READING_PREVIOUS, A.READ_OWNER),
    (P.INITIALISING, E.FENCED): (P.STOPPED, None),
    (P.CLAIMING, E.DONE): (P.READING_BACK, A.READ_OWNER),
    (P.CLAIMING, E.UNKNOWN): (P.READING_BACK, A.READ_OWNER),
    (P.CLAIMING, E.FENCED): (P.STOPPED, None),
    (P.READING_HEAD, E.DONE): (P.COMPARING, A.COMPARE),
    (P.COMPARING, E.GO_ON): (P.OWNED, None),
    (P.COMPARING, E.HALT): (P.CONFIRMING_HALT, A.READ_OWNER),
    **{
        (phase, E.TIMED_OUT): (P.GAVE_UP, None)
        for phase in P
        if phase not in (P.OWNED, P.HALTED, P.STOPPED, P.GAVE_UP)
    },
}
OWNER_READS: dict[
    tuple[TakeoverPhase, OwnerEntry | None], tuple[TakeoverPhase, TakeoverAction | None]
] = {
    (P.READING_PREVIOUS, None): (P.CLAIMING, A.WRITE_CLAIM),
    (P.READING_PREVIOUS, THEIRS): (P.CLAIMING, A.WRITE_CLAIM),
    (P.READING_PREVIOUS, MINE): (P.CLAIMING, A.WRITE_CLAIM),
    (P.READING_BACK, None): (P.STOPPED, None),
    (P.READING_BACK, THEIRS): (P.STOPPED, None),
    (P.READING_BACK, MINE): (P.FENCING, A.FENCE_LANES),
    (P.CONFIRMING_OWNER, None): (P.STOPPED, None),
    (P.CONFIRMING_OWNER, THEIRS): (P.STOPPED, None),
    (P.CONFIRMING_OWNER, MINE): (P.READING_HEAD, A.READ_HEAD),
    (P.CONFIRMING_HALT, None): (P.STOPPED, None),
    (P.CONFIRMING_HALT, THEIRS): (P.STOPPED, None),
    (P.CONFIRMING_HALT, MINE): (P.HALTED, None),
}


def at(phase: TakeoverPhase) -> TakeoverState:
    return TakeoverState(phase, ME, MINE, LANES)


def actions(action: TakeoverAction | None) -> tuple[TakeoverAction, ...]:
    return () if action is None else (action,)


@pytest.mark.parametrize(("phase", "event"), [*product(P, E)])
def test_every_pair_is_listed_or_impossible(phase: TakeoverPhase, event: TakeoverEvent) -> None:
    if (phase, event) in TABLE:
        after, action = TABLE[phase, event]
        assert step(at(phase), event) == (replace(at(phase), phase=after), actions(action))
    else:
        with pytest.raises(InvariantError, match=phase.name):
            step(at(phase), event)


def test_the_table_holds_nothing_else() -> None:
    assert set(TRANSITIONS) == set(TABLE)


@pytest.mark.parametrize("phase", P)
@pytest.mark.parametrize("owner", [None, THEIRS, MINE])
def test_owner_is_read_only_where_it_was_asked_for(
    phase: TakeoverPhase, owner: OwnerEntry | None
) -> None:
    if (phase, owner) in OWNER_READS:
        after, action = OWNER_READS[phase, owner]
        state, asked = step(at(phase), OwnerRead(owner))
        assert (state.phase, asked) == (after, actions(action))
    else:
        with pytest.raises(InvariantError, match=phase.name):
            step(at(phase), OwnerRead(owner))


@pytest.mark.parametrize("phase", [phase for phase in P if phase is not P.FENCING])
def test_lanes_are_fenced_only_where_it_was_asked_for(phase: TakeoverPhase) -> None:
    with pytest.raises(InvariantError, match=phase.name):
        step(at(phase), LaneFenced(LaneId(0, 0)))


def test_an_attempt_begins_with_the_owner_id() -> None:
    assert start(ME) == (TakeoverState(P.INITIALISING, ME), (A.INITIALISE_OWNER,))


def test_the_first_claim_has_the_first_token() -> None:
    state, _ = step(TakeoverState(P.READING_PREVIOUS, ME), OwnerRead(None))
    assert state.claim == OwnerEntry(FIRST_TOKEN, "me", "host-1", 1000, Layout(1, 2))


@pytest.mark.parametrize(
    ("before", "claimed"),
    [
        (Layout(1, 3), Layout(1, 3)),
        (Layout(2, 1), Layout(2, 2)),
        (Layout(1, 1), Layout(1, 2)),
    ],
)
def test_a_claim_follows_the_previous_one_and_never_shrinks(
    before: Layout, claimed: Layout
) -> None:
    previous = replace(THEIRS, max_layout=before)
    state, _ = step(TakeoverState(P.READING_PREVIOUS, ME), OwnerRead(previous))
    assert state.claim == OwnerEntry(FencingToken(8), "me", "host-1", 1000, claimed)


def test_every_lane_that_any_owner_has_used_is_fenced() -> None:
    state, _ = step(TakeoverState(P.READING_BACK, ME, MINE), OwnerRead(MINE))
    assert state.to_fence == {LaneId(0, 0), LaneId(0, 1), LaneId(0, 2)}


def test_owner_is_read_when_the_last_lane_is_fenced() -> None:
    state = at(P.FENCING)
    for lane in sorted(LANES)[:-1]:
        state, asked = step(state, LaneFenced(lane))
        assert (state.phase, asked) == (P.FENCING, ())
    state, asked = step(state, LaneFenced(max(LANES)))
    assert (state.phase, asked) == (P.CONFIRMING_OWNER, (A.READ_OWNER,))


def test_a_claim_with_the_same_token_is_not_mine() -> None:
    impostor = replace(MINE, run_id="they")
    assert is_mine(MINE, "me")
    assert not is_mine(impostor, "me")
    assert not is_mine(None, "me")
    for phase in (P.READING_BACK, P.CONFIRMING_OWNER, P.CONFIRMING_HALT):
        assert step(at(phase), OwnerRead(impostor))[0].phase is P.STOPPED


def test_an_ended_attempt_asks_for_nothing() -> None:
    final = {phase for phase in P if phase.is_final}
    assert final == {P.OWNED, P.HALTED, P.STOPPED, P.GAVE_UP}
    assert not [action for after, action in TABLE.values() if after in final and action]

"""The commit machine: the paths that matter, and that nothing else is possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest

from onceflow.errors import InvariantError
from onceflow.protocol.commit import (
    MAX_ATTEMPTS,
    ROUTES,
    TRANSITIONS,
    Action,
    CommitState,
    Event,
    HeadRead,
    Judgement,
    Phase,
    Verdict,
    start,
    step,
)
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.ledger import HeadEntry
from tests.support.entries import head


@dataclass(frozen=True)
class Judged:
    """A proposal with a fixed judgement of every head."""

    verdict: Verdict
    delivery: Delivery = Delivery.EXACTLY_ONCE

    def judge(self, head: HeadEntry | None) -> Judgement:
        return Judgement(self.verdict, "expected", f"found {head}")


WANTED = Judged(Verdict.WRITE)
P, E, A = Phase, Event, Action
JUDGED: dict[Verdict, tuple[Phase, tuple[Action, ...]]] = {
    Verdict.WRITE: (P.AWAITING_LANE, (A.ACQUIRE_LANE,)),
    Verdict.SKIP: (P.SKIPPED, ()),
    Verdict.FINISH: (P.COMMITTED, ()),
    Verdict.DIVERGED: (P.CONFIRMING_HALT, (A.READ_OWNER,)),
    Verdict.HALT: (P.CONFIRMING_HALT, (A.READ_OWNER,)),
}


def at(
    phase: Phase, verdict: Verdict = Verdict.WRITE, delivery: Delivery = Delivery.EXACTLY_ONCE
) -> CommitState:
    return CommitState(phase, Judged(verdict, delivery), 1, Judgement(Verdict.WRITE))


def following() -> dict[tuple[Phase, Event], tuple[Phase, tuple[Action, ...]]]:
    """Each event that can happen to a batch of exactly_once."""
    route = {phase for phase, _ in TRANSITIONS} - {P.APPENDING_BEFORE, P.APPENDING_AFTER}
    steps = {pair: step(at(pair[0]), pair[1]) for pair in TRANSITIONS if pair[0] in route}
    return {pair: (state.phase, asked) for pair, (state, asked) in steps.items()}


def test_an_event_that_cannot_happen_is_a_bug() -> None:
    """The explorer shows what can happen, and that each entry is needed."""
    for phase, event in {*product(P, E)} - set(TRANSITIONS):
        with pytest.raises(InvariantError, match=event.name):
            step(at(phase), event)
    for phase in {*P} - {P.READING_HEAD}:
        with pytest.raises(InvariantError, match="HeadRead"):
            step(at(phase), HeadRead(None))


@pytest.mark.parametrize("delivery", Delivery)
def test_a_batch_takes_the_route_of_its_mode(delivery: Delivery) -> None:
    state, _ = start(Judged(Verdict.WRITE, delivery), None)
    state, _ = step(state, E.LANE_GRANTED)
    for phase in ROUTES[delivery]:
        assert state.phase is phase
        state, _ = step(state, E.DONE)
    assert state.phase is P.COMMITTED


def test_the_lane_is_given_back_with_the_commit_and_never_again() -> None:
    for delivery in Delivery:
        _, asked = step(at(P.COMMITTING, delivery=delivery), E.DONE)
        assert asked[0] is A.RELEASE_LANE
        # A driver that found in the ledger that the commit has happened has resettled the lane.
        _, asked = step(at(P.READING_HEAD, Verdict.FINISH, delivery), HeadRead(None))
        assert A.RELEASE_LANE not in asked


def test_what_this_run_finds_committed_behind_a_lost_answer_is_appended_at_most_once() -> None:
    state = at(P.READING_HEAD, Verdict.FINISH, Delivery.AT_MOST_ONCE)
    state, asked = step(state, HeadRead(None))
    assert (state.phase, asked) == (P.APPENDING_AFTER, (A.APPEND_RECORDS,))
    assert step(state, E.DONE) == (replace(state, phase=P.COMMITTED), ())


@pytest.mark.parametrize("verdict", Verdict)
def test_a_head_that_was_read_is_judged(verdict: Verdict) -> None:
    entry = head(3, 10, 20)
    state, asked = step(at(P.READING_HEAD, verdict), HeadRead(entry))
    assert (state.phase, asked) == JUDGED[verdict]
    assert state.judgement == Judgement(verdict, "expected", f"found {entry}")


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("delivery", Delivery)
def test_a_proposal_starts_with_its_judgement(verdict: Verdict, delivery: Delivery) -> None:
    """A replay appends nothing, also at most once."""
    entry = head(3, 10, 20)
    state, asked = start(Judged(verdict, delivery), entry)
    first = JUDGED[Verdict.SKIP if verdict is Verdict.FINISH else verdict]
    assert (state.phase, asked) == first
    assert state.attempts == 0
    assert state.judgement.found == f"found {entry}"


def test_an_ended_proposal_asks_for_nothing_but_to_release_its_lane() -> None:
    final = {phase for phase in P if phase.is_final}
    assert final == {P.COMMITTED, P.SKIPPED, P.HALTED, P.STOPPED, P.FAILED, P.LOST}
    assert not {phase for phase, _ in TRANSITIONS if phase in final}
    endings = {asked for after, asked in following().values() if after in final}
    assert endings == {(), (A.RELEASE_LANE,)}


def test_attempts_are_counted_and_bounded() -> None:
    state, asked = start(WANTED, None)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert asked == (A.ACQUIRE_LANE,)
        state, _ = step(state, E.LANE_GRANTED)
        assert state.attempts == attempt
        state, _ = step(state, E.REFUSED)
        state, asked = step(state, E.DONE)
    assert (state.phase, asked) == (P.FAILED, ())


def test_a_judgement_behind_a_lost_answer_counts_as_an_attempt() -> None:
    state = replace(at(P.READING_HEAD), attempts=MAX_ATTEMPTS)
    assert step(state, HeadRead(None))[0].phase is P.FAILED


@pytest.mark.parametrize(
    "phase", [P.SENDING_RECORDS, P.APPENDING_BEFORE, P.SENDING_HEAD, P.SENDING_OFFSETS]
)
def test_what_is_refused_for_good_is_aborted_and_not_tried_again(phase: Phase) -> None:
    state, asked = step(at(phase), E.REFUSED_FOR_GOOD)
    assert asked == (A.ABORT,)
    assert step(state, E.DONE) == (replace(state, phase=P.FAILED), ())


@pytest.mark.parametrize(("verdict", "end"), [(Verdict.WRITE, P.FAILED), (Verdict.SKIP, P.SKIPPED)])
def test_what_a_commit_refuses_for_good_is_looked_up_before_it_fails(
    verdict: Verdict, end: Phase
) -> None:
    state, _ = step(at(P.COMMITTING, verdict), E.REFUSED_FOR_GOOD)
    state, _ = step(state, E.LANE_READY)
    assert step(state, HeadRead(None))[0].phase is end


def test_nothing_is_sent_after_fenced_or_unknown_before_head_was_read() -> None:
    table = following()
    doubts = {after for (_, event), (after, _) in table.items() if event in (E.FENCED, E.UNKNOWN)}
    reached, asked = set(doubts), set()
    while doubts:
        phase = doubts.pop()
        for (before, _), (after, actions) in table.items():
            if before is phase:
                asked |= {*actions}
                doubts |= {after} - reached - {P.READING_HEAD}
                reached.add(after)
    assert P.READING_HEAD in reached
    assert asked <= {A.READ_OWNER, A.RESETTLE_LANE, A.READ_HEAD}

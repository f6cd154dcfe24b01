"""The product's state machines in every interleaving: what never happens, and thanks to which rule.

The largest spaces are in test_explorer_exhaustive.py. What is modelled, and what is not, is told in
tests/support/explorer and in docs/protocol.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from onceflow.protocol import commit, lane, takeover
from onceflow.protocol.delivery import Delivery
from tests.support.explorer.liveness import fresh_run, living_runs
from tests.support.explorer.product import Reads, Rules
from tests.support.explorer.removals import (
    COMPARISONS_THAT_STOP_WORK,
    REMOVALS,
    SHARED_LOG,
    Removal,
    adopting_comparison,
)
from tests.support.explorer.run import Stage
from tests.support.explorer.scope import ALL_FAULTS, Beginning, Fault, Scope
from tests.support.explorer.search import Result, explore, tell

FAULTS = ALL_FAULTS - {Fault.LATE_INIT, Fault.REFUSED_FOR_GOOD}
"""One multiplies a space by four, the other adds nothing that a crash does not do."""
SCOPES = {
    "two drivers, two lanes, two batches": Scope(batches=2, faults=FAULTS),
    "an empty ledger": Scope(
        batches=1, begins=Beginning.NOTHING, faults=frozenset({Fault.LOST_ANSWER})
    ),
    "a second driver with fewer lanes": Scope(batches=1, lanes=(2, 1), faults=FAULTS),
    "a second driver with more lanes": Scope(batches=1, lanes=(1, 2), faults=FAULTS),
    "initialisations that take effect late": Scope(
        batches=1, faults=frozenset({Fault.LATE_INIT, Fault.LOST_ANSWER, Fault.LANE_TIMEOUT})
    ),
    "records that can never be written": Scope(
        batches=1, faults=frozenset({Fault.REFUSED_FOR_GOOD, Fault.LANE_TIMEOUT})
    ),
    "three drivers": Scope(runs=3, batches=1, faults=frozenset()),
    "at least once": Scope(lanes=1, delivery=Delivery.AT_LEAST_ONCE, faults=ALL_FAULTS),
    "at most once": Scope(lanes=1, delivery=Delivery.AT_MOST_ONCE, faults=ALL_FAULTS),
}
RACES = {
    "two drivers on one checkpoint": replace(SHARED_LOG, batches=2),
    "three drivers on one checkpoint": replace(SHARED_LOG, runs=3, lanes=1),
    "at least once on one checkpoint": replace(
        SHARED_LOG, batches=2, delivery=Delivery.AT_LEAST_ONCE
    ),
    "at most once on one checkpoint": replace(
        SHARED_LOG, batches=2, delivery=Delivery.AT_MOST_ONCE
    ),
}
"""On these checkpoints a driver may overwrite the plan of another one."""


@cache
def searched(scope: Scope) -> Result:
    result = explore(scope)
    tell(f"{len(result.worlds)} worlds, {result.steps} steps between them")
    return result


@pytest.mark.parametrize("scope", [*SCOPES.values(), *RACES.values()], ids=[*SCOPES, *RACES])
def test_nothing_is_violated_in_any_interleaving(scope: Scope) -> None:
    result = searched(scope)
    assert result.violation is None, result.story()


def test_owner_may_even_be_read_without_waiting_once_the_claim_was_read_back() -> None:
    rules = Rules(owner_reads=Reads.TO_LAST_STABLE_OFFSET)
    result = explore(Scope(batches=1, faults=FAULTS), rules)
    assert result.violation is None, result.story()


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_a_fresh_driver_can_finish_the_work_from_every_world(scope: Scope) -> None:
    liveness = fresh_run(searched(scope))
    tell(f"left alone in {liveness.starts} worlds, came to {liveness.worlds}")
    assert liveness.is_good


@pytest.mark.parametrize("scope", RACES.values(), ids=RACES)
def test_a_halt_tells_the_truth_and_can_be_cured(scope: Scope) -> None:
    result = searched(scope)
    assert fresh_run(result).stuck
    assert fresh_run(result, frozenset({Stage.FINISHED, Stage.HALTED})).is_good
    assert fresh_run(result, rules=Rules(compare=adopting_comparison)).is_good


def test_a_driver_that_lives_on_alone_finishes_or_stops() -> None:
    for liveness in living_runs(searched(SCOPES["a second driver with fewer lanes"])):
        assert liveness.starts > 1
        assert liveness.is_good


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.rule)
def test_each_rule_is_needed(removal: Removal) -> None:
    result = explore(removal.scope, removal.rules, removal.finds)
    assert result.violation is not None
    tell(f"without the rule that {removal.rule}:\n{result.story()}")


@pytest.mark.parametrize("removal", COMPARISONS_THAT_STOP_WORK, ids=lambda removal: removal.rule)
def test_each_comparison_is_needed(removal: Removal) -> None:
    result = explore(removal.scope, removal.rules)
    assert fresh_run(result, rules=Rules(compare=adopting_comparison)).is_good
    assert fresh_run(result).stuck


def test_every_transition_is_taken() -> None:
    used = {n for s in (SCOPES | RACES).values() for n in searched(s).space.product.used}
    machines = {"commit": commit, "takeover": takeover, "lane": lane}
    listed = {
        (name, phase.name, event.name)
        for name, machine in machines.items()
        for phase, event in machine.TRANSITIONS
    }
    # Giving up a take-over is a crash in disguise; a fresh incarnation of an id is not fenced.
    crashes = {n for n in listed if n[2] == "TIMED_OUT"} | {("takeover", "INITIALISING", "FENCED")}
    assert listed - used == crashes

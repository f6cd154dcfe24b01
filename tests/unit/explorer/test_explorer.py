"""The product's state machines in every interleaving: what never happens, and thanks to which rule.

The largest spaces are in test_explorer_exhaustive.py. tests/support/explorer and docs/protocol.md
say what is modelled, and what is not.
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
    commitless_comparison,
    remedied_comparison,
)
from tests.support.explorer.run import Stage
from tests.support.explorer.scope import ALL_FAULTS, Beginning, Fault, Scope
from tests.support.explorer.search import Result, explore, tell
from tests.support.explorer.space import CHECKPOINT, LANES, TRUTH, Space, World

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
    "a fork": Scope(begins=Beginning.FORK, faults=frozenset({Fault.LOST_ANSWER})),
    "moved state": Scope(begins=Beginning.MOVED, faults=frozenset({Fault.LOST_ANSWER})),
    "tasks that write": Scope(batches=1, has_writers=True, faults=FAULTS),
    "tasks that write, of two batches": Scope(lanes=1, has_writers=True, faults=FAULTS),
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
_LOST = Scope(lanes=1, faults=frozenset({Fault.LOST_ANSWER, Fault.REFUSED, Fault.LANE_TIMEOUT}))
LOSSES = {
    "ledger and checkpoint lost, output kept": replace(_LOST, begins=Beginning.OUTPUT_ALONE),
    "the same in at least once": replace(
        _LOST, begins=Beginning.OUTPUT_ALONE, delivery=Delivery.AT_LEAST_ONCE
    ),
    "ledger set back, output kept": replace(_LOST, begins=Beginning.LEDGER_SET_BACK),
    "ledger lost, two generations in the output": replace(_LOST, begins=Beginning.TWO_GENERATIONS),
}
"""Each is refused until an operator takes the remedy that the refusal offers."""
LOST_COMMIT = Scope(lanes=1, faults=frozenset({Fault.LOST_ANSWER}), loses_commits=True)


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
    assert fresh_run(result, rules=Rules(compare=remedied_comparison)).is_good


@pytest.mark.parametrize("scope", LOSSES.values(), ids=LOSSES)
def test_after_a_loss_no_number_comes_again_and_the_remedy_leads_on(scope: Scope) -> None:
    result = explore(scope, Rules(compare=remedied_comparison))
    tell(f"{len(result.worlds)} worlds, {result.steps} steps between them")
    assert result.violation is None, result.story()
    assert fresh_run(result).is_good
    refused = fresh_run(result, rules=Rules())
    assert refused.stuck


@pytest.mark.parametrize("delivery", Delivery)
def test_a_commit_log_that_lost_an_entry_is_repaired_where_the_ledger_proves_its_batch(
    delivery: Delivery,
) -> None:
    result = explore(replace(LOST_COMMIT, delivery=delivery))
    tell(f"{len(result.worlds)} worlds, {result.steps} steps between them")
    assert result.violation is None, result.story()
    either = fresh_run(result, frozenset({Stage.FINISHED, Stage.HALTED}))
    assert either.is_good
    proven = replace(result, worlds=[w for w in result.worlds if _is_proven(result.space, w)])
    assert fresh_run(proven).is_good
    assert fresh_run(proven, rules=Rules(compare=commitless_comparison)).stuck


def _is_proven(space: Space, world: World) -> bool:
    """Whether the entry is lost, its batch the newest that is committed, and nothing under way."""
    checkpoint, committed = space.part(world, CHECKPOINT), space.part(world, TRUTH).committed
    lanes = [space.part(world, LANES + n).id for n in space.lanes]
    is_quiet = not any(lane.is_undecided or lane.commits for lane in lanes)
    return is_quiet and checkpoint.planned == checkpoint.done + 2 == committed + 1


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
    assert fresh_run(result, rules=Rules(compare=remedied_comparison)).is_good
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

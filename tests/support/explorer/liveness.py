"""Whether work can always be finished: from every world that a search has reached.

Safety alone is cheap: a driver that never writes is safe. So take every reached world, let
all runs but one die, and see whether that one can always finish with no other run to disturb it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.support.explorer.product import Rules
from tests.support.explorer.run import Stage
from tests.support.explorer.scope import Fault
from tests.support.explorer.search import Result
from tests.support.explorer.space import Space, World

TIMEOUTS = frozenset({Fault.OWNER_TIMEOUT, Fault.LANE_TIMEOUT})


@dataclass(frozen=True)
class Liveness:
    """Outcome of the runs that were left alone.

    Args:
        starts: different worlds that a run was left alone in.
        worlds: different ones that it could come to from there.
        stuck: those of them from which it cannot come to its end any more.
        violations: of the checks, on its way.
        space: to look into the worlds.
    """

    starts: int
    worlds: int
    stuck: frozenset[World]
    violations: frozenset[str]
    space: Space

    @property
    def is_good(self) -> bool:
        """Whether every run came to its end, and did nothing wrong."""
        return not self.stuck and not self.violations


def fresh_run(
    result: Result,
    goals: frozenset[Stage] = frozenset({Stage.FINISHED}),
    rules: Rules | None = None,
) -> Liveness:
    """Everybody dies and a fresh run begins; no further fault happens.

    It may not even wait for a transaction time-out: its fence has to decide everything.

    Args:
        rules: of the fresh run, if not those of the search.
    """
    space = _quiet(result, frozenset(), rules)
    last = space.runs[-1]
    left = {space.without_others(world, last): world for world in result.worlds}
    return _explore(space, left.values(), last, goals)


def living_runs(result: Result) -> list[Liveness]:
    """For each run: all others die, it goes on, and has to finish or to stop.

    It may have to wait until the coordinator times out the claim of a dead run.
    """
    space = _quiet(result, TIMEOUTS, None)
    goals = frozenset({Stage.FINISHED, Stage.ENDED, Stage.HALTED})
    found = []
    for index in range(result.space.scope.runs):
        left = {space.without_others(world, index): world for world in result.worlds}
        found.append(_explore(space, left.values(), index, goals))
    return found


def _quiet(result: Result, faults: frozenset[Fault], rules: Rules | None) -> Space:
    """The space of a search with fewer faults; its worlds mean the same."""
    product = result.space.product
    if rules is not None:
        product = replace(product, rules=rules)
    return Space(replace(result.space.scope, faults=faults), product, result.space.kinds)


def _explore(space: Space, left: Iterable[World], index: int, goals: frozenset[Stage]) -> Liveness:
    starts = {space.canonical(space.alone(world, index)) for world in left}
    worlds = list(starts)
    number_of = {world: number for number, world in enumerate(worlds)}
    before: list[list[int]] = [[] for _ in worlds]
    ended, violations = [], set()
    for number, world in enumerate(worlds):
        if space.run(world, index).stage in goals:
            ended.append(number)
        steps = (*space.kafka_steps, *space.steps_of(world, index))
        for _, reached, violation in space.outcomes(world, steps):
            if violation is not None:
                violations.add(violation)
            after = space.canonical(reached)
            if after not in number_of:
                number_of[after] = len(worlds)
                worlds.append(after)
                before.append([])
            before[number_of[after]].append(number)
    good = _backwards(ended, before)
    stuck = frozenset(world for number, world in enumerate(worlds) if number not in good)
    return Liveness(len(starts), len(worlds), stuck, frozenset(violations), space)


def _backwards(numbers: list[int], before: list[list[int]]) -> set[int]:
    """Everything from which one of these can be reached."""
    found, at = set(numbers), list(numbers)
    while at:
        for number in before[at.pop()]:
            if number not in found:
                found.add(number)
                at.append(number)
    return found

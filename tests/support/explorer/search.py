"""Breadth-first search with shortest traces, and the check that work can always be finished."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field

from tests.support.explorer.product import Product, Rules
from tests.support.explorer.scope import Scope
from tests.support.explorer.space import Space, World
from tests.support.explorer.steps import Note

MAX_WORLDS = 20_000_000
"""Beyond this, memory runs out before patience does; a search of that size has to be split."""


@dataclass
class Result:
    """Result of a search.

    Args:
        violation: the first one, which is one with a shortest trace; None if there is none.
        worlds: how many different ones were reached.
        steps: how many were tried between them.
    """

    space: Space
    violation: str | None = None
    trace: list[str] = field(default_factory=list)
    worlds: list[World] = field(default_factory=list)
    steps: int = 0

    def story(self) -> str:
        """The counterexample for people."""
        lines = [f"{n:3} {label}" for n, label in enumerate(self.trace, start=1)]
        return "\n".join([*lines, f"  => {self.violation}"])


def tell(text: str) -> None:
    """Show something of a search: `pytest -rP` prints it, and so does a failure."""
    sys.stdout.write(f"{text}\n")


def explore(scope: Scope, rules: Rules | None = None, finds: str = "") -> Result:
    """Visit every world that can be reached, or stop at the first violation.

    Args:
        finds: how the violation begins that is looked for; the search goes on behind others.
    """
    search = _Search(Space(scope, Product(rules or Rules())), finds)
    search.run()
    return search.result


class _Found(Exception):
    """A violation that was looked for."""


class _Search:
    def __init__(self, space: Space, finds: str) -> None:
        start = space.canonical(space.initial())
        self.result = Result(space, worlds=[start])
        self._space = space
        self._finds = finds
        self._seen = {start}
        self._parents = array("I", [0])

    def run(self) -> None:
        result = self.result
        number = 0
        try:
            for number, world in enumerate(result.worlds):
                self._visit(number, world)
        except _Found as found:
            result.violation = str(found)
            path = _path(result.worlds, self._parents, number)
            result.trace = _trace(self._space, path, result.violation)

    def _visit(self, number: int, world: World) -> None:
        """Find the worlds behind one. Most of the time of a search is spent in here."""
        seen, worlds, canonical = self._seen, self.result.worlds, self._space.canonical
        for step in self._space.steps_at(world):
            outcomes = step[world & step.looks]
            kept = world & step.keeps
            self.result.steps += len(outcomes)
            for bits, _, note in outcomes:
                after = kept | bits
                if note is not None:
                    after = self._noted(after, note)
                elif after in seen:
                    continue
                after = canonical(after)
                if after not in seen:
                    seen.add(after)
                    worlds.append(after)
                    self._parents.append(number)
        assert len(worlds) <= MAX_WORLDS

    def _noted(self, world: World, note: Note) -> World:
        world, violation = self._space.noted(world, note)
        if violation is not None and violation.startswith(self._finds):
            raise _Found(violation)
        return world


def _path(worlds: list[World], parents: array[int], number: int) -> list[World]:
    path = [worlds[number]]
    while number != 0:
        number = parents[number]
        path.append(worlds[number])
    return path[::-1]


def _trace(space: Space, path: list[World], violation: str) -> list[str]:
    """Walk the path again, without renaming lanes on the way, and note what was done."""
    world, labels = space.initial(), []
    for target in path[1:]:
        label, world = next(
            (label, after)
            for label, after, _ in space.outcomes(world, space.steps_at(world))
            if space.canonical(after) == target
        )
        labels.append(label)
    last = space.outcomes(world, space.steps_at(world))
    return [*labels, next(label for label, _, found in last if found == violation)]

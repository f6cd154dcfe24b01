"""Numbers in place of values: what makes a search quick.

Each value of a part of the world (a lane, a run, the checkpoint, ...) gets a number, and a world is
the numbers of its parts side by side in one integer. A step looks at few parts: its outcomes are
computed once for each combination of those and looked up from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from tests.support.explorer.run import Outcome, Outcomes, Run

WIDTH = 20
"""Bits of a part's number: a million values of one kind, a hundred times what was ever seen."""
ONES = (1 << WIDTH) - 1

Note: TypeAlias = tuple[str | None, int | None]
"""Violation; the run that is over with this step. One of them is not None."""
Coded: TypeAlias = tuple[int, str, Note | None]
"""New numbers of the parts, in place; label; what is not ordinary, if anything."""


class Values:
    """Numbers the values of one kind of part."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value; a new one if it was never seen."""
        number = self._numbers.setdefault(value, len(self.known))
        if number == len(self.known):
            assert number <= ONES
            self.known.append(value)
        return number


class Mapping(dict[int, int]):
    """A function of one part, from numbers in place to numbers in place, computed on demand."""

    def __init__(self, values: Values, place: int, function: Callable[[Any], Any]) -> None:
        self.looks = ONES << WIDTH * place
        self._shift = WIDTH * place
        self._values = values
        self._function = function

    def __missing__(self, number: int) -> int:
        value = self._function(self._values.known[number >> self._shift])
        self[number] = result = self._values.number(value) << self._shift
        return result


class Step(dict[int, list[Coded]]):
    """One kind of step at fixed places of the world: from what it looks at to its outcomes.

    Args:
        kinds: the values at every place.
        places: the parts that it looks at and may change.
        run: whose step it is; None for Kafka's own.
    """

    def __init__(
        self,
        kinds: list[Values],
        places: tuple[int, ...],
        function: Callable[..., Outcomes],
        run: int | None,
    ) -> None:
        self.looks = sum(ONES << WIDTH * place for place in places)
        self.keeps = sum(ONES << WIDTH * p for p in range(len(kinds)) if p not in places)
        self._parts = [(kinds[place], WIDTH * place) for place in places]
        self._function = function
        self._run = run

    def __missing__(self, seen: int) -> list[Coded]:
        values = [kind.known[seen >> shift & ONES] for kind, shift in self._parts]
        coded = (self._coded(outcome) for outcome in self._function(*values))
        different = {(bits, note): (bits, label, note) for bits, label, note in coded}
        different.pop((seen, None), None)
        self[seen] = outcomes = list(different.values())
        return outcomes

    def _coded(self, outcome: Outcome) -> Coded:
        parts = zip(self._parts, outcome.parts, strict=True)
        bits = sum(kind.number(value) << shift for (kind, shift), value in parts)
        first = outcome.parts[0]
        over = self._run if isinstance(first, Run) and first.stage.is_final else None
        is_noted = outcome.violation is not None or over is not None
        return bits, outcome.label, (outcome.violation, over) if is_noted else None

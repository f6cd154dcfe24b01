"""Whether the state of a query can go on under a changed query. Pure.

Spark finds the state of an operator by its number, and looks at the types of its columns only: a
`max` would go on from a `sum`, and an operator from the state of its neighbour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from onceflow.pipeline.plan.operators import StateOperator
from onceflow.processing.evolution import Evolution
from onceflow.runtime.state.layout import KINDS


def compare_operators(
    before: Sequence[StateOperator], after: Sequence[StateOperator]
) -> Mapping[str, Evolution]:
    """Say what becomes of the state of each operator, by its name in `onceflow state list`."""
    if [each.kind for each in before] != [each.kind for each in after]:
        return _other_operators(before, after)
    names = _names(after)
    found = {}
    for name, old, new in zip(names, before, after, strict=True):
        moved = [n for n, each in zip(names, before, strict=True) if each.does == new.does]
        if moved and old.does != new.does:
            refused = f"{_told(new)} would go on with the state of {_told(old)}"
            found[name] = Evolution(refused=[refused])
        else:
            found[name] = compare_operator(old, new)
    return found


def compare_operator(old: StateOperator, new: StateOperator) -> Evolution:
    """Say what becomes of the state of an operator as that of another."""
    if old.kind != new.kind:
        return Evolution(refused=[f"{_told(old)} cannot become {_told(new)}"])
    if faults := [*_column_faults(old, new)]:
        return Evolution(refused=faults)
    return Evolution(kept=["; ".join([_told(new), *_changes(old, new)])])


def _other_operators(
    before: Sequence[StateOperator], after: Sequence[StateOperator]
) -> Mapping[str, Evolution]:
    found = {}
    for name, each in zip(_names(before), before, strict=True):
        if each.does not in [other.does for other in after]:
            found[name] = Evolution(refused=[f"{_told(each)} is gone"])
    for name, each in zip(_names(after), after, strict=True):
        if each.does not in [other.does for other in before]:
            gone = found.setdefault(name, Evolution())
            gone.refused.append(f"{_told(each)} is new, and has no state in this checkpoint")
    order = ", ".join(_names(before)), ", ".join(_names(after))
    return found or {"query": Evolution(refused=[f"{order[0]} would be {order[1]}"])}


def _column_faults(before: StateOperator, after: StateOperator) -> Iterator[str]:
    for part, olds, news in (
        ("key", before.key, after.key),
        ("value", before.value, after.value),
    ):
        for number, (old, new) in enumerate(zip_longest(olds, news), start=1):
            if old is None:
                yield f"{part} column {number}, {new}, is new"
            elif new is None:
                yield f"{part} column {number}, {old}, is gone"
            elif old != new:
                yield f"{part} column {number} is {old}, and would be {new}"


def _changes(old: StateOperator, new: StateOperator) -> Iterator[str]:
    for before, after in ((old.by, new.by), (old.computes, new.computes)):
        pairs = [*zip(before, after, strict=False)]
        if len(before) != len(after):
            pairs = [(", ".join(before), ", ".join(after))]
        yield from (f"{one} becomes {other}" for one, other in pairs if one != other)


def _told(operator: StateOperator) -> str:
    by = f" by {', '.join(operator.by)}" if operator.by else ""
    computes = f" of {', '.join(operator.computes)}" if operator.computes else ""
    return f"{_kind(operator)}{computes}{by}"


def _kind(operator: StateOperator) -> str:
    return KINDS.get(operator.kind, operator.kind)


def _names(operators: Sequence[StateOperator]) -> Sequence[str]:
    counts = Counter(map(_kind, operators))
    return [
        kind if counts[kind := _kind(each)] == 1 else f"{kind}-{each.operator}"
        for each in operators
    ]

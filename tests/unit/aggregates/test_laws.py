"""Each law, broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onceflow.aggregates import Aggregate, Sum
from onceflow.aggregates.laws import check_laws


class Plain(Aggregate):
    """Keeps every law."""

    input = "smallint"
    accumulator = "bigint"
    output = "bigint"

    def zero(self) -> Any:
        return 0

    def add(self, acc: Any, value: Any) -> Any:
        return acc + (value or 0)

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, acc: Any) -> Any:
        return acc


class Starts(Plain):
    def zero(self) -> Any:
        return 1


class Difference(Plain):
    def merge(self, a: Any, b: Any) -> Any:
        return a - b


class Halves(Plain):
    accumulator = output = "double"

    def zero(self) -> Any:
        return 0.0

    def merge(self, a: Any, b: Any) -> Any:
        return a + b if 0 in {a, b} else (a + b) / 2


class AddsTwice(Plain):
    def add(self, acc: Any, value: Any) -> Any:
        return acc + 2 * (value or 0) if acc else value or 0


class WrongSubtract(Plain):
    def subtract(self, acc: Any, value: Any) -> Any:
        return acc - abs(value or 0)


class Changes(Plain):
    accumulator = output = "array<int>"

    def zero(self) -> Any:
        return []

    def add(self, acc: Any, value: Any) -> Any:
        if value is not None:
            acc.append(value)
            acc.sort()
        return acc

    def merge(self, a: Any, b: Any) -> Any:
        return sorted([*a, *b])


class Counts(Plain):
    """Not the same twice."""

    def __init__(self) -> None:
        self.calls = 0

    def result(self, acc: Any) -> Any:
        self.calls += 1
        return self.calls


class Raises(Plain):
    def add(self, acc: Any, value: Any) -> Any:
        return acc + value


class Text(Plain):
    def result(self, acc: Any) -> Any:
        return str(acc)


class Narrow(Plain):
    accumulator = "smallint"


class Untyped(Plain):
    accumulator = "biggint"


BROKEN: Mapping[type[Aggregate], str] = {
    Starts: "Starts: merge with zero() changes an accumulator: (2, 2) is not (1, 1), "
    "with no values.",
    Difference: "Difference: merge depends on the order of the two (it is not commutative): "
    "-1 is not 1, with b of [1].",
    Halves: "Halves: merge depends on which two come first (it is not associative): ",
    AddsTwice: "AddsTwice: add(acc, value) is not merge(acc, add(zero(), value)): "
    "3 is not 2, with a of [1], value 1.",
    WrongSubtract: "WrongSubtract: subtract does not undo add: -2 is not 0, with value -1.",
    Changes: "Changes: the arguments of a method are changed: ",
    Counts: "Counts: the same values do not give the same result: ",
    Raises: "Raises: add raised TypeError: ",
    Text: "Text: result does not return its declared type: expected bigint, found str '0', "
    "with value 0.",
    Narrow: "Narrow: add does not return its declared type: expected smallint, ",
    Untyped: "Untyped: types refused `biggint`; ",
}


def test_an_aggregate_that_keeps_them_passes() -> None:
    assert check_laws(Plain(), [1, None, 3]) == []


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_law_is_told_with_the_smallest_values(kind: type[Aggregate]) -> None:
    found = check_laws(kind())
    assert any(each.startswith(BROKEN[kind]) for each in found), found
    assert check_laws(kind()) == found or kind is Counts


def test_types_are_told_alone() -> None:
    assert len(check_laws(Text())) == 1


class Rare(Plain):
    """Goes wrong with one value that is not found by chance."""

    input = "bigint"
    accumulator = "decimal(38,0)"
    output = "string"

    def zero(self) -> Any:
        return 0

    def merge(self, a: Any, b: Any) -> Any:
        return a + b + (777_777_777 in {a, b})

    def result(self, acc: Any) -> Any:
        return str(acc)


def test_samples_are_tried() -> None:
    assert check_laws(Rare()) == []
    (found,) = [each for each in check_laws(Rare(), [777_777_777]) if "merge with zero()" in each]
    assert found.endswith("with a of [777777777].")


def test_a_sample_of_another_type_is_told() -> None:
    assert check_laws(Sum("int"), ["x"]) == ["Sum: expected int, found str 'x'."]

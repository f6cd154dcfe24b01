"""Each ready aggregate against a plain oracle, under random splits and orders."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.aggregates import (
    Aggregate,
    CollectSet,
    Count,
    DistinctCount,
    Histogram,
    LastByTime,
    Max,
    Mean,
    Min,
    Sum,
    TopK,
    Variance,
)
from onceflow.aggregates.aggregate import order
from onceflow.aggregates.generate import values
from onceflow.aggregates.laws import check_laws
from onceflow.columns import parse_type

Oracle = Callable[[Sequence[Any]], Any]


def _nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _total(numbers: Sequence[float]) -> float | Fraction:
    if all(math.isfinite(each) for each in numbers):
        return sum(map(Fraction, numbers), Fraction(0))
    return sum(each for each in numbers if not math.isfinite(each))


def _sum(numbers: Sequence[float]) -> float | None:
    total = _total(numbers)
    if not numbers:
        return None
    return _nearest(total) if isinstance(total, Fraction) else total


def _mean(numbers: Sequence[Any]) -> float | None:
    if not numbers:
        return None
    total = _total(numbers)
    return _nearest(total / len(numbers)) if isinstance(total, Fraction) else total


def _variance(numbers: Sequence[Any]) -> float | None:
    if len(numbers) < 2:
        return None
    total = _total(numbers)
    if not isinstance(total, Fraction):
        return math.nan
    mean = total / len(numbers)
    squares = (abs(Fraction(each) - mean) ** 2 for each in numbers)
    return _nearest(sum(squares, Fraction(0)) / (len(numbers) - 1))


def _histogram(numbers: Sequence[float]) -> list[int]:
    large = sum(math.isnan(each) or each >= 10 for each in numbers)
    small = sum(each < 0 for each in numbers)
    return [small, len(numbers) - small - large, large]


def _last(pairs: Sequence[Any]) -> Any:
    known = [each for each in pairs if None not in each]
    return max(known, default=(None, None))[1]


READY: list[tuple[Aggregate, Oracle]] = [
    (Count("double"), len),
    (Sum("bigint"), lambda given: Decimal(sum(given)) if given else None),
    (
        Sum("decimal(28,3)"),
        lambda given: (
            Decimal(int(sum(Fraction(each) * 1000 for each in given))).scaleb(-3) if given else None
        ),
    ),
    (Sum("double"), _sum),
    (Sum("float"), _sum),
    (Mean("double"), _mean),
    (Mean("bigint"), _mean),
    (Mean("decimal(38,10)"), _mean),
    (Variance("double"), _variance),
    (Variance("bigint"), _variance),
    (Min("double"), lambda given: min(given, key=order, default=None)),
    (Max("double"), lambda given: max(given, key=order, default=None)),
    (Max("a int, b string"), lambda given: max(given, key=order, default=None)),
    (TopK("double", 3), lambda given: sorted(given, key=order)[::-1][:3]),
    (DistinctCount("double"), lambda given: len({order(each + 0.0) for each in given})),
    (DistinctCount("a int, b array<string>"), lambda given: len({order(each) for each in given})),
    (Histogram("double", [0.0, 10.0]), _histogram),
    (CollectSet("string"), lambda given: sorted(set(given))),
    (LastByTime("string"), _last),
]
each_ready = pytest.mark.parametrize(
    ("aggregate", "oracle"), READY, ids=[f"{each.name}-{each.input}" for each, _ in READY]
)


def _fold(aggregate: Aggregate, given: Sequence[Any]) -> Any:
    acc = aggregate.zero()
    for value in given:
        acc = aggregate.add(acc, value)
    return acc


def _in_pieces(aggregate: Aggregate, given: Sequence[Any], rng: random.Random) -> Any:
    """In random order, in random pieces, merged in random pairs."""
    given = rng.sample(given, len(given))
    cuts = sorted(rng.choices(range(len(given) + 1), k=rng.randrange(4)))
    edges = [0, *cuts, len(given)]
    pieces = [_fold(aggregate, given[a:b]) for a, b in pairwise(edges)]
    while len(pieces) > 1:
        first = pieces.pop(rng.randrange(len(pieces)))
        second = pieces.pop(rng.randrange(len(pieces)))
        pieces.append(aggregate.merge(first, second))
    return pieces[0]


@each_ready
def test_equals_the_oracle_however_values_are_split(aggregate: Aggregate, oracle: Oracle) -> None:
    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(st.lists(values(parse_type(aggregate.input)), max_size=8), st.integers(0, 999))
    def holds(found: list[Any], seed: int) -> None:
        acc = _in_pieces(aggregate, found, random.Random(seed))
        assert order(acc) == order(_fold(aggregate, found))
        expected = oracle([each for each in found if each is not None])
        assert order(aggregate.result(acc)) == order(expected)

    holds()


@each_ready
def test_keeps_the_laws(aggregate: Aggregate, oracle: Oracle) -> None:
    assert oracle([]) in (None, 0, [], [0, 0, 0])
    assert check_laws(aggregate) == []


def test_doubles_that_naive_sums_lose_are_kept() -> None:
    assert Sum("double").result(_fold(Sum("double"), [1e308, 1e308, 1.0, -1e308, -1e308])) == 1.0
    tiny = 5e-324
    assert Sum("double").result(_fold(Sum("double"), [tiny, 1e300, tiny, -1e300])) == 2 * tiny
    large = [1e9 + each for each in (4, 7, 13, 16)]
    assert Variance("double").result(_fold(Variance("double"), large)) == 30.0


def test_a_value_taken_back_leaves_nothing_even_of_infinity() -> None:
    total = Sum("double")
    acc = total.subtract(total.add(total.add(total.zero(), 0.1), math.inf), math.inf)
    assert acc == total.add(total.zero(), 0.1)


def test_a_distinct_count_of_many_is_near_and_does_not_depend_on_order() -> None:
    count = DistinctCount("bigint")
    numbers = list(range(20_000))
    rng = random.Random(1)
    parts = [_fold(count, numbers[at::40]) for at in range(40)]
    found = []
    for _ in range(3):
        rng.shuffle(parts)
        acc = count.zero()
        for part in parts:
            acc = count.merge(acc, part)
        found.append(acc)
    assert len(set(found)) == 1
    assert len(found[0].registers) == 4096
    assert abs(count.result(found[0]) - 20_000) < 3 * 0.01625 * 20_000
    assert _fold(count, numbers[:1024]).registers == b""
    assert count.result(_fold(count, numbers[:1024])) == 1024
    assert abs(count.result(_fold(count, numbers[:1025])) - 1025) < 50


def test_of_values_at_one_time_the_largest_is_last() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    last = LastByTime("string")
    pairs = [(at, "a"), (at, "b"), (at - timedelta(seconds=1), "z"), (at, None), (None, "y")]
    assert last.result(_fold(last, pairs)) == "b"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Sum("string"), "expected a type of numbers, found string"),
        (lambda: Sum("decimal(30,2)"), "a sum needs 10 more digits than decimal"),
        (lambda: TopK("int", 0), "k must be from 1 to 10,000, found 0"),
        (lambda: Histogram("int", [2, 2]), "bounds must be ascending"),
        (lambda: Histogram("int", []), "at least one"),
        (lambda: Histogram("int", ["x"]), "expected int, found str"),
        (lambda: Histogram("array<int>", [1]), "expected a type without parts"),
        (lambda: Max("int").subtract(1, 1), "Max cannot take a value back"),
    ],
)
def test_what_cannot_be_is_told(make: Callable[[], object], text: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=text):
        make()

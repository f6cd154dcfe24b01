"""Rows in which two computations of a batch differ."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.batch.divergence import Difference, differences

maybe = st.none() | st.binary(max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2), maybe, maybe), max_size=12)


@given(rows, st.randoms(use_true_random=False))
def test_equal_batches_in_any_order_do_not_differ(batch: list, random: Random) -> None:  # type: ignore[type-arg]
    other = random.sample(batch, len(batch))
    assert differences(batch, other) == []


@given(rows, rows)
def test_what_differs_turns_one_batch_into_the_other(before: list, after: list) -> None:  # type: ignore[type-arg]
    found = differences(before, after)
    assert bool(found) is (sorted(map(repr, before)) != sorted(map(repr, after)))
    assert len(found) <= len(before) + len(after)


def test_a_row_that_changed_stands_beside_what_it_was() -> None:
    before = [(0, b"a", b"1"), (0, b"b", b"2"), (1, b"c", b"3")]
    after = [(0, b"a", b"1"), (0, b"b", b"9"), (1, b"d", b"3")]
    assert differences(before, after) == [
        Difference(0, b"b", b"2", b"9"),
        Difference(1, b"c", b"3", None),
        Difference(1, b"d", None, b"3"),
    ]


def test_a_difference_is_told_in_words() -> None:
    told = str(Difference(3, None, b"x" * 300, "\N{SNOWMAN}".encode()))
    assert told.startswith("partition 3, key nothing: committed xxx")
    assert told.endswith("x..., computed \N{SNOWMAN}")

"""A backlog is cut so that all partitions advance together in time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.contracts.connector import Place
from onceflow_connectors.kafka.source.cut import (
    GOOD_FILL,
    Backlog,
    Cut,
    cut_in_proportion,
    cut_in_time,
)

Log = Mapping[Place, Sequence[int]]
"""place -> timestamp of the record at each offset."""


def lookup(log: Log) -> Callable[[int], Mapping[Place, int | None]]:
    """As Kafka does it: the first offset whose record is not older."""
    newest = {place: list(accumulate(stamps, max)) for place, stamps in log.items()}

    def offsets_at(at_ms: int) -> Mapping[Place, int | None]:
        found = {place: bisect_left(newest[place], at_ms) for place in log}
        return {place: at if at < len(log[place]) else None for place, at in found.items()}

    return offsets_at


def cut_log(log: Log, limit: int, starts: Cut | None = None, first_look_ms: int = 0) -> Cut:
    starts = starts or dict.fromkeys(log, 0)
    backlog = Backlog(starts, {place: len(stamps) for place, stamps in log.items()})
    newest_ms = max((max(stamps) for stamps in log.values() if stamps), default=-1)
    cut, _ = cut_in_time(backlog, limit, (first_look_ms, newest_ms), lookup(log))
    assert set(cut) == set(log)
    assert all(starts[place] <= cut[place] <= len(log[place]) for place in log)
    assert 0 < backlog.size_of(cut) <= limit
    return cut


def place(partition: int) -> Place:
    return ("t", partition)


timestamps = st.lists(st.integers(0, 10_000), max_size=60)
logs = st.dictionaries(st.integers(0, 3).map(place), timestamps, min_size=1)


@given(logs, st.integers(1, 40), st.integers(-5, 20_000))
def test_records_in_order_are_read_at_most_one_timestamp_apart(
    log: Log, limit: int, first_look_ms: int
) -> None:
    log = {p: sorted(stamps) for p, stamps in log.items()}
    if sum(map(len, log.values())) <= limit:
        return
    cut = cut_log(log, limit, first_look_ms=first_look_ms)
    read = [stamp for p in log for stamp in log[p][: cut[p]]]
    left = [stamp for p in log for stamp in log[p][cut[p] :]]
    assert max(read) <= min(left)


@given(logs, st.integers(1, 40))
def test_whatever_the_timestamps_everything_is_read_in_bounded_steps(log: Log, limit: int) -> None:
    starts: Cut = dict.fromkeys(log, 0)
    while sum(len(log[p]) - starts[p] for p in log) > limit:
        starts = cut_log(log, limit, starts)


def test_a_batch_is_well_filled_in_a_few_look_ups() -> None:
    log = {place(0): range(0, 1_000_000, 10), place(1): range(500_000, 1_000_000, 100)}
    looks = []
    offsets_at = lookup(log)

    def counted(at_ms: int) -> Mapping[Place, int | None]:
        looks.append(at_ms)
        return offsets_at(at_ms)

    backlog = Backlog(dict.fromkeys(log, 0), {p: len(stamps) for p, stamps in log.items()})
    cut, _ = cut_in_time(backlog, 10_000, (0, 1_000_000), counted)
    assert GOOD_FILL * 10_000 <= backlog.size_of(cut) <= 10_000
    assert len(looks) <= 4


def test_a_partition_that_starts_late_waits_for_the_others() -> None:
    log = {place(0): range(100), place(1): range(50, 150)}
    cut = cut_log(log, 50)
    assert cut == {place(0): 45, place(1): 0} or cut[place(1)] == 0


def test_equal_timestamps_are_cut_by_offset() -> None:
    log = {place(0): [7] * 100, place(1): [7] * 300}
    assert cut_log(log, 40) == {place(0): 10, place(1): 30}


def test_records_without_timestamps_are_cut_by_offset() -> None:
    backlog = Backlog({place(0): 0, place(1): 0}, {place(0): 10, place(1): 30})
    cut, _ = cut_in_time(backlog, 8, (0, -1), lambda _: dict.fromkeys(backlog.starts))
    assert cut == {place(0): 2, place(1): 6}


def test_one_future_timestamp_does_not_stop_progress() -> None:
    log = {place(0): [1, 2**62, *range(2, 50)], place(1): range(50)}
    starts: Cut = dict.fromkeys(log, 0)
    for _ in range(20):
        starts = cut_log(log, 10, starts)
        if sum(len(log[p]) - starts[p] for p in log) <= 10:
            return
    pytest.fail("a batch of ten at a time does not get through a hundred records")


@given(st.dictionaries(st.integers(0, 5).map(place), st.integers(0, 100)), st.integers(1, 50))
def test_a_share_is_in_proportion_and_fills_the_limit(sizes: dict[Place, int], limit: int) -> None:
    backlog = Backlog(dict.fromkeys(sizes, 1000), {p: 1000 + n for p, n in sizes.items()})
    if backlog.size <= limit:
        return
    cut = cut_in_proportion(backlog, limit)
    assert backlog.size_of(cut) == limit
    for p, size in sizes.items():
        assert 0 <= cut[p] - 1000 <= size
        assert cut[p] - 1000 >= limit * size // backlog.size

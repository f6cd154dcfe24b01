"""The pure parts of the storm: what is drawn, what is counted, what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from tests.faults.sweep.storm.draw import KINDS, Fault, faults
from tests.faults.sweep.storm.figures import counts, differences, latencies, latency
from tests.faults.sweep.storm.player import ALL_HANDS, Played
from tests.faults.sweep.storm.workload import (
    LATENESS_MS,
    WINDOW_MS,
    Cell,
    Counted,
    Row,
    cell_and_row,
    page_of,
    payload,
)


def first(seed: int, number: int) -> list[Fault]:
    return list(islice(faults(seed, 20.0, KINDS), number))


def test_one_seed_draws_the_same_faults_again() -> None:
    assert first(7, 50) == first(7, 50)
    assert first(7, 50) != first(8, 50)


def test_every_kind_is_drawn_and_can_be_played() -> None:
    kinds = {fault.kind.name for fault in first(1, 1_000)}

    assert kinds == {kind.name for kind in KINDS} == set(ALL_HANDS)


def counted(numbers: Sequence[int]) -> Counted:
    result = Counted()
    for number in numbers:
        result.add(payload(number, 1_000_000 + number * 100, page_of(number)))
    return result


def test_windows_are_recounted_from_the_log_and_only_those_that_are_over() -> None:
    log = counted(range(300))
    closed = log.closed()

    assert log.records == 300
    assert log.newest_ms == 1_029_900
    # 1,029,900 - 10,000 is in the window from 1,018,000 on, which is open; 180 records before it.
    assert sum(row.views for row in closed.values()) == 180
    assert sum(row.total_id for row in closed.values()) == sum(range(180))
    assert max(start for _, start in closed) + WINDOW_MS <= log.newest_ms - LATENESS_MS


def test_what_stands_in_the_input_twice_or_not_at_all_is_told() -> None:
    log = counted([0, 1, 1, 3, 1])

    assert log.repeats == {1: 3}
    assert log.missing(range(6)) == [2, 4, 5]


def test_a_row_of_the_output_is_read_as_it_is_written() -> None:
    value = b'{"page":"p3","start":"2026-03-01T00:00:02.000Z","views":2,"total_ms":9,"total_id":17}'

    assert cell_and_row(value) == (("p3", 1_772_323_202_000), Row(2, 9, 17))


A, B = ("p1", 0), ("p2", 0)
EXPECTED = {A: Row(3, 30, 6), B: Row(1, 5, 9)}


@pytest.mark.parametrize(
    ("found", "lost", "repeated"),
    [
        ([(A, Row(3, 30, 6))], 1, 0),
        ([(A, Row(3, 30, 6)), (B, Row(1, 5, 9)), (B, Row(1, 5, 9))], 0, 1),
        ([(A, Row(1, 10, 2)), (B, Row(1, 5, 9))], 2, 0),
        ([(A, Row(3, 30, 6)), (B, Row(1, 5, 9)), (("p3", 0), Row(4, 1, 1))], 0, 4),
        # As many records, and other ones: the sum of their ids tells.
        ([(A, Row(3, 30, 7)), (B, Row(1, 5, 9))], 0, 0),
    ],
)
def test_each_way_in_which_windows_can_differ_is_told(
    found: Sequence[tuple[Cell, Row]], lost: int, repeated: int
) -> None:
    result = differences(EXPECTED, found)

    assert (result.lost_records, result.repeated_records) == (lost, repeated)
    assert len(result.texts) == 1


def test_a_latency_counts_from_when_its_window_could_close() -> None:
    marks = [(1_000, 500), (2_000, WINDOW_MS + LATENESS_MS), (3_000, 2 * WINDOW_MS + LATENESS_MS)]
    seen = {("p1", 0): 2_700, ("p1", WINDOW_MS): 3_100, ("p1", 10 * WINDOW_MS): 9_000}
    taken = latencies(marks, seen)
    of_all, of_quiet = latency(taken), latency(taken, [(2_500, 3_500)])

    assert taken == [(2_000, 700), (3_000, 100)]
    assert of_all is not None
    assert (of_all.rows, of_all.median_ms, of_all.worst_ms) == (2, 400, 700)
    assert of_quiet is not None
    assert of_quiet.worst_ms == 100
    assert latency(taken, []) is None


def test_a_fault_that_did_not_fire_is_not_counted() -> None:
    played = [
        Played(0, "refuse", 1.0, 2.0, {"times": 1}),
        Played(1, "refuse", 3.0, 4.0, {}, failure="no one asked"),
    ]

    assert counts(played) == ({"refuse": 1}, ["#1 refuse: no one asked"])

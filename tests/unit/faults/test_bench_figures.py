"""How the benchmark gets from observations to figures."""

from __future__ import annotations

import pytest

from bench.figures import Mark, latencies_ms, memory, percentile, throughput
from bench.workload import Result
from onceflow.errors import DeadlineError

CELL = ("a1", 0)


def test_throughput_leaves_the_warm_up_out() -> None:
    marks = [Mark(25, 100.0, 9.0), Mark(75, 101.0, 9.5), Mark(100, 101.5, 9.75)]

    found = throughput(marks, 100, 0.25, 1.0)

    assert found.records_per_s == pytest.approx(50.0)
    assert found.cpu_s_per_million == pytest.approx(10_000)


def test_a_backlog_of_one_batch_cannot_be_measured() -> None:
    with pytest.raises(DeadlineError):
        throughput([Mark(100, 1.0, 1.0)], 100, 0.25, 1.0)


def test_a_record_has_shown_with_the_first_result_that_counts_it() -> None:
    seen = [(1_000, Result(CELL, 2, 0)), (1_500, Result(CELL, 3, 0))]

    assert latencies_ms({CELL: [900, 950, 1_100]}, seen, 0) == [100, 50, 400]


def test_a_result_that_was_read_twice_counts_once() -> None:
    seen = [(1_000, Result(CELL, 2, 0)), (2_000, Result(CELL, 1, 0)), (3_000, Result(CELL, 2, 0))]

    assert latencies_ms({CELL: [900, 950]}, seen, 0) == [100, 50]


def test_records_of_the_warm_up_have_no_latency() -> None:
    assert latencies_ms({CELL: [900, 950]}, [(1_000, Result(CELL, 2, 0))], 950) == [50]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_memory_is_compared_late_with_early_in_the_run() -> None:
    rising = [(float(second), 100.0 + second) for second in range(1, 101)]

    found = memory(rising)

    assert (found.early_mb, found.late_mb) == (129.5, 190.0)

"""The benchmark's records and its oracle: a wrong output never counts."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bench.workload import (
    LATENESS_MS,
    WINDOW_MS,
    Oracle,
    Record,
    Result,
    Workload,
    backlog_time_ms,
    check_filtered,
)
from onceflow.errors import CorruptionError

KEYS, PARTITIONS = 10, 2
WORKLOAD = Workload(KEYS, PARTITIONS)


def answered(records: int = 100, step_ms: int = 500) -> Oracle:
    oracle = Oracle()
    for number in range(records):
        oracle.add(WORKLOAD.record(number, number * step_ms))
    return oracle


def results(oracle: Oracle) -> list[Result]:
    return [Result(cell, *answer) for cell, answer in oracle.answer.items()]


def test_keys_are_spread_evenly_and_each_stays_in_one_partition() -> None:
    records = [WORKLOAD.record(number, 0) for number in range(1_000)]

    counts = Counter(record.key for record in records)
    assert len(counts) == KEYS
    assert max(counts.values()) < 2 * min(counts.values())
    assert len({(record.key, record.partition) for record in records}) == KEYS


def test_a_payload_says_what_the_oracle_counts() -> None:
    payload = json.loads(Record(0, "a7", 5, 123).payload())

    assert (payload["ad_id"], payload["amount"], payload["ts"]) == ("a7", 5, 123)


def test_final_results_that_are_complete_pass() -> None:
    oracle = answered()

    oracle.check_final(results(oracle))


def test_windows_that_lateness_keeps_open_may_be_missing_and_no_others() -> None:
    oracle = answered()
    closed_ms = oracle.newest_ms - LATENESS_MS - WINDOW_MS
    last_ms = max(cell[1] for cell in oracle.answer if cell[1] <= closed_ms)

    oracle.check_final(result for result in results(oracle) if result.cell[1] <= last_ms)
    with pytest.raises(CorruptionError):
        oracle.check_final(result for result in results(oracle) if result.cell[1] < last_ms)


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda good: [*good, good[0]], id="repeated"),
        pytest.param(lambda good: good[1:], id="lost"),
        pytest.param(
            lambda good: [Result(good[0].cell, good[0].records + 1, good[0].total), *good[1:]],
            id="wrong",
        ),
        pytest.param(lambda good: [*good, Result(("unknown", 0), 1, 1)], id="invented"),
    ],
)
@pytest.mark.parametrize("check", ["check_final", "check_updates"])
def test_a_wrong_output_is_refused(spoilt: object, check: str) -> None:
    oracle = answered()
    assert callable(spoilt)

    with pytest.raises(CorruptionError, match="oracle"):
        getattr(oracle, check)(spoilt(results(oracle)))


def test_updates_that_grow_up_to_the_answer_pass() -> None:
    oracle = answered()
    first = [Result(good.cell, 1, 0) for good in results(oracle) if good.records > 1]

    oracle.check_updates([*first, *results(oracle)])


def test_without_windows_keys_have_the_sum_of_their_windows() -> None:
    by_key = Oracle(has_windows=False)
    for number in range(100):
        by_key.add(WORKLOAD.record(number, number * 500))

    assert len(by_key.answer) == KEYS
    assert answered().by_key() == by_key


def test_a_result_without_a_window_is_of_its_key() -> None:
    payload = b'{"ad_id":"a7","records":2,"total":9}'

    assert Result.from_payload(payload) == Result(("a7", 0), 2, 9)


def filtered(number: int, **changed: object) -> bytes:
    record = WORKLOAD.record(number, backlog_time_ms(number))
    row = {"ad_id": record.key, "doubled": record.amount * 2, "ts": record.at_ms}
    return json.dumps({**row, **changed}).encode()


RECORDS = 2_015
FILTERED = [filtered(number) for number in reversed(range(RECORDS)) if number % 10]


def test_nine_of_ten_records_pass_in_any_order() -> None:
    check_filtered(FILTERED, WORKLOAD, RECORDS)


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param([*FILTERED, FILTERED[5]], id="repeated"),
        pytest.param(FILTERED[1:], id="lost"),
        pytest.param([*FILTERED[:-1], filtered(1, doubled=3)], id="wrong"),
        pytest.param([*FILTERED[:-1], filtered(1, ad_id="a77")], id="wrong key"),
        pytest.param([*FILTERED[:-1], filtered(1, more=1)], id="one column too many"),
        pytest.param([*FILTERED, filtered(10)], id="not filtered"),
        pytest.param([*FILTERED, filtered(RECORDS)], id="beyond the backlog"),
    ],
)
def test_wrong_filtered_records_are_refused(spoilt: list[bytes]) -> None:
    with pytest.raises(CorruptionError, match="oracle"):
        check_filtered(spoilt, WORKLOAD, RECORDS)

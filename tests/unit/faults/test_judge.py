"""The judge of an output names whatever is wrong with it."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.history.wire import HEADER, VERSION
from tests.faults.history.writes import Expected
from tests.support.outside.history import Written
from tests.support.outside.judge import account_faults, anomalies

PIPELINE = "judged"
ROWS = [{"n": n} for n in range(4)]
"""Two batches of two rows, all in partition 0."""
COUNTED = {"read": 7, "late": 1, "rejected": 2, "written": 3}


def written(sequence: int, batch_id: int) -> Written:
    tag = zlib.crc32(PIPELINE.encode())
    header = HEADER.pack(VERSION, 0, 1, tag, 1, 0, batch_id, sequence)
    return Written(0, sequence - 1, b"k", json.dumps(ROWS[sequence - 1]).encode(), header)


def head(batch_id: int, first: int, last: int) -> dict[str, Any]:
    batch = {"generation": 1, "batch_id": batch_id, "token": 1, "run_id": "r", "note": ""}
    ranges = {"s": {"t": {"0": [first - 1, last]}}}
    sink = {"sequence": {"0": [first, last]}}
    records = {"written": last - first + 1}
    return {"pipeline": PIPELINE, **batch, "sources": ranges, "sink": sink, "records": records}


OUTPUT = [written(sequence, (sequence - 1) // 2) for sequence in range(1, 5)]
HEADS = [head(0, 1, 2), head(1, 3, 4)]
AGAIN = replace(OUTPUT[3], offset=4)
FOREIGN = replace(AGAIN, header=None)
SKIPPED = [*OUTPUT[:2], *(written(sequence, 2) for sequence in (3, 4))]
GAP = {"sources": {"s": {"t": {"0": [3, 4]}}}}


@pytest.mark.parametrize(
    ("output", "heads", "expected"),
    [
        (OUTPUT, HEADS, set()),
        (OUTPUT[:3], HEADS, {"lost_write", "torn_batch", "ledger_mismatch"}),
        (OUTPUT[:1] + OUTPUT[2:], HEADS, {"lost_write", "sequence_hole", "torn_batch"}),
        ([*OUTPUT, AGAIN], HEADS, {"duplicate", "nonmonotonic_sequence", "torn_batch"}),
        ([], HEADS, {"lost_write", "torn_batch", "ledger_mismatch"}),
        (OUTPUT, HEADS[:1], {"torn_batch", "ledger_mismatch"}),
        (OUTPUT, [HEADS[0], HEADS[1] | GAP], {"ledger_mismatch"}),
        (OUTPUT, [HEADS[0], HEADS[1] | {"records": {"written": 3}}], {"torn_batch"}),
        (SKIPPED, [HEADS[0], HEADS[1] | {"batch_id": 2}], {"ledger_mismatch"}),
        ([*OUTPUT, FOREIGN], HEADS, {"foreign_record", "duplicate"}),
        (OUTPUT, [HEADS[1]], {"torn_batch"}),
        (OUTPUT, [HEADS[1] | {"note": "rebuilt"}], set()),
    ],
    ids=[
        "right",
        "lost",
        "hole",
        "repeated",
        "empty",
        "uncommitted",
        "range",
        "miscounted",
        "skipped",
        "foreign",
        "head-lost",
        "rebuilt",
    ],
)
def test_the_judge_names_what_is_wrong(
    output: list[Written], heads: list[dict[str, Any]], expected: set[str]
) -> None:
    found = anomalies(output, heads, Expected.of_rows(ROWS))

    assert {anomaly.name for anomaly in found} == expected


def account(**totals: int) -> list[dict[str, Any]]:
    first = {"read": 3, "late": 0, "rejected": 2, "written": 1}
    second = {"read": 4, "late": 1, "rejected": 0, "written": 2}
    return [
        {"records": first, "totals": first},
        {"records": second, "totals": COUNTED | totals},
    ]


def test_an_account_that_agrees_has_no_fault() -> None:
    assert account_faults(account(), COUNTED) == []


@pytest.mark.parametrize("name", COUNTED)
def test_a_count_that_differs_is_a_fault(name: str) -> None:
    (other,) = account_faults(account(), COUNTED | {name: 9})
    (unlike_its_batches,) = account_faults(account(**{name: 9}), COUNTED | {name: 9})

    assert other.startswith(f"{name}: ")
    assert other.endswith(", 9 counted")
    assert unlike_its_batches.startswith(f"{name}: ")
    assert unlike_its_batches.endswith(", 9 in the totals")

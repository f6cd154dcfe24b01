"""Partial aggregation in a task: fewer rows leave than come, and merge into the same results."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from onceflow.aggregates import Count, Max, TopK
from onceflow.errors import RecordError
from onceflow.pipeline.process import partial
from onceflow.pipeline.process.partial import Partial

KEPT = pa.schema([("k0", pa.string()), ("r0", pa.int64()), ("r1", pa.list_(pa.string()))])
FOLDS = Partial(1, ["n", "top"], [Count("string"), TopK("string", 2)], KEPT)


def batches(rows: int, keys: int, size: int = 100) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        numbers = range(start, start + size)
        texts = [f"{n:05}" for n in numbers]
        yield pa.record_batch(
            {"k0": [f"key {n % keys}" for n in numbers], "a0": texts, "a1": texts}
        )


def test_a_task_sends_a_row_for_each_group() -> None:
    (made,) = FOLDS.partial_aggregates(batches(1000, 3))
    assert made.schema == KEPT
    assert made.to_pylist() == [
        {"k0": "key 0", "r0": 334, "r1": ["00999", "00996"]},
        {"k0": "key 1", "r0": 333, "r1": ["00997", "00994"]},
        {"k0": "key 2", "r0": 333, "r1": ["00998", "00995"]},
    ]


def test_a_task_holds_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "MAX_GROUPS", 150)
    made = list(FOLDS.partial_aggregates(batches(1000, 1000)))
    assert [len(batch) for batch in made] == [200] * 5
    assert sum(row["r0"] for batch in made for row in batch.to_pylist()) == 1000


def test_a_task_without_rows_sends_none() -> None:
    assert list(FOLDS.partial_aggregates([])) == []


class Picky(Max):
    def add(self, acc: object, value: object) -> object:
        if value == "bad":
            raise ValueError("not this one")
        return 1 if value == "wrong" else super().add(acc, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("bad", "the aggregate best failed: Picky, value 'bad'.*ValueError: not this one"),
        ("wrong", "the aggregate best failed: Picky, accumulator 1.*expected string"),
    ],
)
def test_an_aggregate_that_fails_names_itself_and_the_value(value: str, text: str) -> None:
    kept = pa.schema([("k0", pa.string()), ("r0", pa.string())])
    folds = Partial(1, ["best"], [Picky("string")], kept)
    rows = pa.record_batch({"k0": ["a", "a"], "a0": ["good", value]})
    with pytest.raises(RecordError, match=text):
        list(folds.partial_aggregates([rows]))

"""Rows of a task: whole keys, sorted, as Python objects."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby

import pyarrow as pa
import pytest

from onceflow.errors import RecordError
from onceflow.pipeline.process import rows as tested


@pytest.mark.parametrize("limit", [1, 100, 1_000_000])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_no_table_ends_within_a_key(limit: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "CHUNK_BYTES", limit)
    keys = [key for key, count in zip("abcde", (1, 7, 40, 1, 1), strict=True) for _ in range(count)]
    table = pa.table({"k": keys, "v": range(50)})
    batches = [*table.to_batches(size), pa.RecordBatch.from_pylist([], table.schema)]
    tables = list(tested.whole_keys(batches, ["k"]))
    assert pa.concat_tables(tables).equals(table)
    seen = [key for each in tables for key, _ in groupby(each.column("k").to_pylist())]
    assert seen == [*"abcde"]


def test_rows_of_a_key_are_sorted_by_each_column_in_turn_nulls_first() -> None:
    table = pa.table(
        {
            "k": ["a", "a", "a", "a", "b", None],
            "at": pa.array([2, 1, 1, None, 1, 1], pa.timestamp("us", tz="UTC")),
            "text": ["x", "ö", "z", "y", None, "w"],
            "parts": [[1], [2], [1], None, [], [3]],
        }
    )
    found = [
        (key, [row[2] for row in rows])
        for key, rows in tested.by_key(table, ["k"], ["at", "parts", "text"])
    ]
    assert found == [(("a",), ["y", "z", "ö", "x"]), (("b",), [None]), ((None,), ["w"])]
    [(_, [first, *_]), *_] = tested.by_key(table.slice(1, 1), ["k"], ["at"])
    assert first == ("a", datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "ö", [2])


def test_keys_are_told_apart_as_spark_does() -> None:
    table = pa.table({"k": ["a", "b", "b", None, None], "l": [1, 1, 1, 1, 2]})
    sizes = [len(rows) for _, rows in tested.by_key(table, ["k", "l"], [])]
    assert sizes == [1, 2, 1, 1]


def test_rows_are_in_order_of_a_column_that_is_null() -> None:
    """Arrow finds no type for it, and PySpark's own way has none to tell."""
    columns = [pa.chunked_array([pa.array(each)]) for each in ([None, None], [2, 1])]
    assert list(tested.in_order(columns)) == [1, 0]


def test_a_time_that_python_does_not_have_is_refused() -> None:
    table = pa.table({"k": [1], "at": pa.array([2**62], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(RecordError, match="column at; expected a year from 1 to 9999"):
        list(tested.by_key(table, ["k"], []))


MOST = datetime.max.replace(tzinfo=UTC)
LEAST = datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        pytest.param(pa.string(), [*["a"] * 9, *[None] * 9, *["b"] * 9, "a"], id="texts-repeat"),
        pytest.param(pa.string(), [None, "a", None, "b"], id="texts-differ"),
        pytest.param(pa.binary(), [b"", *[b"a"] * 9], id="bytes"),
        pytest.param(pa.float64(), [0.0, *[-0.0] * 9, None], id="zeros"),
        pytest.param(pa.bool_(), [True, True, None, False], id="truths"),
        pytest.param(pa.timestamp("us", "UTC"), [LEAST, None, MOST], id="times"),
        pytest.param(pa.timestamp("us", "UTC"), [None, None], id="no-times"),
        pytest.param(pa.timestamp("us", "UTC"), [MOST, LEAST], id="all-times"),
        pytest.param(pa.timestamp("us"), [datetime(1969, 12, 31, 23), None], id="local-times"),  # noqa: DTZ001
        pytest.param(pa.list_(pa.int32()), [[1], [1], [1], [1], [1], None], id="lists"),
        pytest.param(pa.string(), [], id="nothing"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_values_are_those_of_arrow(kind: pa.DataType, values: list[object], size: int) -> None:
    parts = [pa.array(values[at : at + size], kind) for at in range(0, len(values), size)]
    table = pa.table({"v": pa.chunked_array(parts, kind)})
    found = tested.values_of(table, "v")
    assert repr(found) == repr(values)


def test_equal_texts_of_a_key_are_one_object() -> None:
    found = tested.values_of(pa.table({"k": ["a"] * 100}), "k")
    assert len({id(each) for each in found}) == 1

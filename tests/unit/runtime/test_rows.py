"""Rows get their order, and their numbers from it, the same way at every replay."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import RecordError
from onceflow.protocol.digest import digest_of
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import SinkState
from onceflow.protocol.order import ARRIVAL, SORTED, Order, Term, Ties
from onceflow.protocol.record import Flag, HeaderPacker, RecordHeader
from onceflow.runtime.records.rows import (
    KEY_COLUMN,
    ORDER_COLUMN,
    PARTITION_COLUMN,
    VALUE_COLUMN,
    number_records,
    sort_batch,
)

HEADERS = HeaderPacker(pipeline_tag=1, generation=1, plan_tag=2, batch_id=3)
EMPTY_SINK = SinkState("out", 4, Layout(1, 3))
rows_strategy = st.lists(
    st.tuples(st.none() | st.binary(max_size=4), st.none() | st.binary(max_size=4)), max_size=40
)


def crc32_of(keys: Sequence[bytes | None]) -> list[int]:
    return [zlib.crc32(key or b"") % 4 for key in keys]


def table_of(rows: Sequence[tuple[bytes | None, bytes | None]]) -> pa.Table:
    return pa.table(
        {
            KEY_COLUMN: pa.array([k for k, _ in rows], pa.binary()),
            VALUE_COLUMN: pa.array([v for _, v in rows], pa.binary()),
        }
    )


@given(rows_strategy)
def test_rows_of_one_output_partition_keep_the_order_of_their_input(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    batch = sort_batch(table_of(rows), 4, crc32_of, ARRIVAL)
    chosen = crc32_of([key for key, _ in rows])
    if rows and all(key is None for key, _ in rows):
        chosen = crc32_of([value for _, value in rows])
    placed = [(partition, *row) for partition, row in zip(chosen, rows, strict=True)]
    assert batch.rows == [row for wanted in range(4) for row in placed if row[0] == wanted]
    assert batch.digest == digest_of(batch.rows)


@given(rows_strategy)
def test_without_an_order_in_head_rows_stand_as_the_versions_before_wrote_them(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    """By (partition, key, value), null first: written down here once more, as it was."""
    batch = sort_batch(table_of(rows), 4, crc32_of, SORTED)
    assert batch.rows == sorted(
        batch.rows,
        key=lambda r: (r[0], r[1] is not None, r[1] or b"", r[2] is not None, r[2] or b""),
    )
    assert Counter((key, value) for _, key, value in batch.rows) == Counter(rows)


COLUMNS: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-3, 3),
    pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 2.5, math.nan, math.inf, -math.inf]),
    pa.string(): st.sampled_from(["", "a", "b", "B", "\u00e4", "\U0001f600", "\uffff"]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\x7f", b"\x80"]),
    pa.bool_(): st.booleans(),
    pa.decimal128(5, 2): st.decimals(-1, 1, places=2),
    pa.date32(): st.dates(date(1969, 12, 30), date(1970, 1, 2)),
    pa.timestamp("us", "UTC"): st.integers(-2, 2).map(
        lambda hours: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    ),
}


@given(st.data(), st.sampled_from([*COLUMNS]), st.booleans(), st.sampled_from(Ties))
def test_rows_are_ordered_by_a_column_of_any_type_and_then_as_usual(
    data: st.DataObject, kind: pa.DataType, is_descending: bool, ties: Ties
) -> None:
    cells = data.draw(st.lists(st.none() | COLUMNS[kind], max_size=25))
    rows = [(data.draw(st.sampled_from([b"a", b"b"])), b"%d" % n) for n in range(len(cells))]
    table = table_of(rows).append_column(f"{ORDER_COLUMN}c", pa.array(cells, kind))
    order = Order((Term("c", is_descending),), ties)

    found = sort_batch(table, 4, crc32_of, order).rows

    cell_of = {value: cell for (_, value), cell in zip(rows, cells, strict=True)}
    for before, after in itertools.pairwise(found):
        if before[0] != after[0]:
            continue
        one, other = _place(cell_of[before[2] or b""]), _place(cell_of[after[2] or b""])
        assert one >= other if is_descending else one <= other
        if one == other and ties is Ties.CONTENT:
            assert before <= after
        elif one == other:
            assert int(before[2] or 0) < int(after[2] or 0)


def _place(cell: Any) -> tuple[Any, ...]:
    """Null first, NaN after every number; text by its bytes."""
    if cell is None:
        return (0,)
    if isinstance(cell, float) and math.isnan(cell):
        return (2,)
    return (1, cell.encode() if isinstance(cell, str) else cell)


@given(rows_strategy, st.randoms(use_true_random=False))
def test_order_of_arrival_changes_nothing(
    rows: list[tuple[bytes | None, bytes | None]], shuffler: random.Random
) -> None:
    """Where it cannot be reproduced, and content breaks ties."""
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    first = sort_batch(table_of(rows), 4, crc32_of, SORTED)
    second = sort_batch(table_of(shuffled), 4, crc32_of, SORTED)
    assert first == second
    assert number_records(first, EMPTY_SINK, HEADERS, 7) == number_records(
        second, EMPTY_SINK, HEADERS, 7
    )


@given(rows_strategy)
def test_every_row_is_numbered_once_and_without_a_hole(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    batch = sort_batch(table_of(rows), 4, crc32_of, SORTED)
    before = SinkState("out", 4, Layout(1, 3), {0: (1, 10)})
    records = number_records(batch, before, HEADERS, 7)
    assert sorted((r.key or b"", r.value or b"") for r in records) == sorted(
        (k or b"", v or b"") for k, v in rows
    )
    after = before.advanced(batch.counts)
    for partition in range(4):
        headers = [
            RecordHeader.unpack(r.header or b"") for r in records if r.partition == partition
        ]
        start = before.next_sequence(partition)
        assert [h.sequence for h in headers] == list(range(start, start + len(headers)))
        assert [bool(h.flags & Flag.LAST_OF_BATCH) for h in headers] == [
            i == len(headers) - 1 for i in range(len(headers))
        ]
        assert after.next_sequence(partition) == start + len(headers)


def test_a_null_is_another_row_than_an_empty_text() -> None:
    with_null = sort_batch(table_of([(None, b"")]), 4, crc32_of, SORTED)
    with_empty = sort_batch(table_of([(b"", None)]), 4, crc32_of, SORTED)
    assert with_null.digest != with_empty.digest


@pytest.mark.parametrize("chosen", [-1, 4, None])
def test_a_partition_that_does_not_exist_is_refused(chosen: int | None) -> None:
    table = table_of([(b"k", b"v")]).append_column(PARTITION_COLUMN, pa.array([chosen], pa.int32()))
    with pytest.raises(RecordError, match="0 to 3"):
        sort_batch(table, 4, crc32_of, SORTED)


def test_without_refused_rows_no_number_is_missing_and_the_digest_is_that_of_what_is_left() -> None:
    table = table_of([(b"c", b"1"), (b"b", b"22"), (b"a", b"3")])
    batch = sort_batch(table, 1, lambda k: [0] * 3, ARRIVAL)
    left = batch.without([batch.rows[1]])
    assert left.rows == [batch.rows[0], batch.rows[2]]
    assert left.counts == {0: 2}
    assert left.digest == digest_of(left.rows)
    assert batch.without(batch.largest(1)) == left
    assert batch.without(batch.largest(0)) == batch
    records = number_records(left, SinkState("out", 1, Layout(1, 3)), HEADERS, 7)
    assert [RecordHeader.unpack(record.header or b"").sequence for record in records] == [1, 2]

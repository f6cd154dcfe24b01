"""Numbering must not depend on the order in which Spark delivers rows."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import RecordError
from onceflow.protocol.digest import digest_of
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import SinkState
from onceflow.protocol.record import Flag, HeaderPacker, RecordHeader
from onceflow.runtime.rows import (
    KEY_COLUMN,
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


@given(rows_strategy, st.randoms(use_true_random=False))
def test_order_of_arrival_changes_nothing(
    rows: list[tuple[bytes | None, bytes | None]], shuffler: random.Random
) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    first = sort_batch(table_of(rows), 4, crc32_of)
    second = sort_batch(table_of(shuffled), 4, crc32_of)
    assert first == second
    assert number_records(first, EMPTY_SINK, HEADERS, 7) == number_records(
        second, EMPTY_SINK, HEADERS, 7
    )


@given(rows_strategy)
def test_every_row_is_numbered_once_and_without_a_hole(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    batch = sort_batch(table_of(rows), 4, crc32_of)
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
    with_null = sort_batch(table_of([(None, b"")]), 4, crc32_of)
    with_empty = sort_batch(table_of([(b"", None)]), 4, crc32_of)
    assert with_null.digest != with_empty.digest


@pytest.mark.parametrize("chosen", [-1, 4, None])
def test_a_partition_that_does_not_exist_is_refused(chosen: int | None) -> None:
    table = table_of([(b"k", b"v")]).append_column(PARTITION_COLUMN, pa.array([chosen], pa.int32()))
    with pytest.raises(RecordError, match="0 to 3"):
        sort_batch(table, 4, crc32_of)


def test_without_refused_rows_no_number_is_missing_and_the_digest_is_that_of_what_is_left() -> None:
    batch = sort_batch(table_of([(b"a", b"1"), (b"b", b"22"), (b"c", b"3")]), 1, lambda k: [0] * 3)
    left = batch.without([batch.rows[1]])
    assert left.rows == [batch.rows[0], batch.rows[2]]
    assert left.counts == {0: 2}
    assert left.digest == digest_of(left.rows)
    assert batch.without(batch.largest(1)) == left
    assert batch.without(batch.largest(0)) == batch
    records = number_records(left, SinkState("out", 1, Layout(1, 3)), HEADERS, 7)
    assert [RecordHeader.unpack(record.header or b"").sequence for record in records] == [1, 2]

"""Rows of a task between Arrow and Python: whole keys, in a reproducible order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.errors import RecordError

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_MOST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
MOST_RUNS = 0.25
"""Of equal texts, for each row. With more of them, each row's text is made by itself."""
CHUNK_BYTES = 4 * 2**20
"""Of Arrow data. As Python objects, they are some ten times as much."""


def whole_keys(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Cut rows that are grouped by key into tables, none of which ends within a key."""
    held: list[pa.RecordBatch] = []
    size, limit = 0, CHUNK_BYTES
    for batch in filter(len, batches):
        held.append(batch)
        size += batch.nbytes
        if size < limit:
            continue
        table = pa.Table.from_batches(held)
        last = int(_starts(table, keys)[-1])
        if last:
            yield table.slice(0, last)
            held = table.slice(last).to_batches()
            size, limit = sum(each.nbytes for each in held), CHUNK_BYTES
        else:
            # Looking for the key's end at each batch would be quadratic.
            limit = 2 * size
    if held:
        yield pa.Table.from_batches(held)


def by_key(
    table: pa.Table, keys: Sequence[str], order: Sequence[str]
) -> Iterator[tuple[Key, Sequence[Row]]]:
    """Give the rows of each key, sorted by the columns of `order`.

    Raises:
        RecordError: a value is none that Python has.
    """
    starts = _starts(table, keys)
    runs = np.zeros(table.num_rows, dtype=np.int64)
    runs[starts[1:]] = 1
    indices = in_order([table.column(name) for name in order], np.cumsum(runs))
    if (np.diff(indices) != 1).any():
        table = table.take(pa.array(indices))
    rows = list(zip(*[values_of(table, name) for name in table.column_names], strict=True))
    places = [table.column_names.index(name) for name in keys]
    for start, end in pairwise([*starts.tolist(), len(rows)]):
        yield tuple(rows[start][place] for place in places), rows[start:end]


def in_order(columns: Sequence[pa.ChunkedArray], *groups: Any) -> Any:
    """Indices that sort rows by groups, then columns: nulls first, nested values by their text."""
    return np.lexsort([*(_codes(each) for each in reversed(columns)), *groups])


def plain_key(key: Iterable[Any], zoned: Sequence[bool]) -> Key:
    """The key that PySpark gives with a timer, as it is among rows.

    Args:
        key: its timestamps have the machine's time zone, and do not say so.
        zoned: which of its values are points in time.
    """
    return tuple(_plain(value, is_zoned) for value, is_zoned in zip(key, zoned, strict=True))


def to_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Make Arrow data of rows of the output."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _starts(table: pa.Table, keys: Sequence[str]) -> Any:
    """Where each key begins. The first is 0."""
    return _starts_of([table.column(name) for name in keys])


def _starts_of(columns: Sequence[pa.ChunkedArray]) -> Any:
    """Where rows begin that are unlike the one before. The first is 0."""
    changed = np.zeros(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        before, after = column.slice(0, len(changed)), column.slice(1)
        differs = pc.fill_null(pc.not_equal(before, after), False).to_numpy()
        is_null = column.is_null().to_numpy()
        changed |= differs | (is_null[1:] != is_null[:-1])
    return np.concatenate([[0], np.flatnonzero(changed) + 1])


def _codes(column: pa.ChunkedArray) -> Any:
    """Integers in the order of the values."""
    kind = column.type
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.int64)
    if column.null_count == 0 and pa.types.is_integer(kind):
        return column.to_numpy()
    if column.null_count == 0 and pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_numpy()
    if pa.types.is_nested(kind):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        column = pa.chunked_array([pa.array(texts, pa.string())])
    ranks = pc.rank(column, "ascending", tiebreaker="dense").to_numpy()
    return np.where(column.is_null().to_numpy(), 0, ranks)


def _plain(value: Any, is_zoned: bool) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone(UTC) if is_zoned and isinstance(value, datetime) else value


def values_of(table: pa.Table, name: str) -> list[Any]:
    """Values of a column; times are in UTC.

    Raises:
        RecordError: a value is none that Python has.
    """
    column = table.column(name)
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = column.to_numpy().tolist()
        return values
    if pa.types.is_timestamp(kind):
        return _times(column, name)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _repeated(column)
    return column.to_pylist()  # type: ignore[no-any-return]


def _times(column: pa.ChunkedArray, name: str) -> list[Any]:
    since = column.cast(pa.timestamp("us")).cast(pa.int64())
    extremes = pc.min_max(since).as_py()
    if since.null_count < len(since) and not (
        extremes["min"] >= _LEAST_US and extremes["max"] <= _MOST_US
    ):
        raise RecordError(
            "a timestamp is none that Python has",
            subject=f"column {name}",
            expected="a year from 1 to 9999",
            then="stopping; leave such records out by a query before the processor",
        )
    zero = _EPOCH if column.type.tz else _EPOCH.replace(tzinfo=None)
    since_zero = pc.fill_null(since, 0).to_numpy().view("timedelta64[us]")
    # To replace the zone of a datetime takes ten times as long as to add to one that has it.
    times = list(map(zero.__add__, since_zero.tolist()))
    if not since.null_count:
        return times
    is_null = since.is_null().to_numpy().tolist()
    return [None if gone else at for at, gone in zip(times, is_null, strict=True)]


def _repeated(column: pa.ChunkedArray) -> list[Any]:
    """Texts: rows are grouped by key, so many are like the one before, and share its object."""
    starts = _starts_of([column])
    if len(starts) > len(column) * MOST_RUNS:
        return column.to_pylist()  # type: ignore[no-any-return]
    values = np.empty(len(starts), dtype=object)
    values[:] = column.take(pa.array(starts)).to_pylist()
    repeated: list[Any] = values.repeat(np.diff(starts, append=len(column))).tolist()
    return repeated

"""From the columns of a computed batch to numbered output records. Pure: Arrow in, records out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.contracts.sink import OutputRecord
from onceflow.errors import RecordError
from onceflow.protocol.digest import Row, digest_of
from onceflow.protocol.ledger import SinkState
from onceflow.protocol.order import Order, Ties
from onceflow.protocol.record import Flag, HeaderPacker

KEY_COLUMN = "__key"
VALUE_COLUMN = "__value"
PARTITION_COLUMN = "__partition"
ORDER_COLUMN = "__order."
"""Before the name of a column that an order looks at."""


@dataclass(frozen=True)
class SortedBatch:
    """The rows of a batch in the one order in which every replay numbers them.

    Args:
        rows: by output partition, and within each in the order of the batch.
        counts: partition -> number of rows; only partitions that have some.
    """

    rows: Sequence[Row]
    counts: Mapping[int, int]
    digest: str

    def without(self, refused: Sequence[Row]) -> SortedBatch:
        """The same batch without some rows."""
        left = [*filterfalse({*refused}.__contains__, self.rows)]
        return SortedBatch(left, Counter(partition for partition, _, _ in left), digest_of(left))

    def largest(self, count: int) -> Sequence[Row]:
        """So many rows, those that a limit of size refuses first."""
        return sorted(self.rows, key=size_bytes, reverse=True)[:count]


def sort_batch(
    table: pa.Table,
    partitions: int,
    partition_of: Callable[[Sequence[bytes | None]], list[int]],
    order: Order,
) -> SortedBatch:
    """Assign partitions, sort and digest.

    The table has columns KEY and VALUE (binary), PARTITION (int) if the query chooses it, and those
    that `order` looks at. Its rows are in any order if ties are broken by content, and in that of
    their input if by arrival. Without any key, the values are spread as if they were keys: evenly,
    and the same way on every replay.

    Raises:
        RecordError: the query chose a partition that does not exist.
    """
    keys = table.column(KEY_COLUMN).to_pylist()
    values = table.column(VALUE_COLUMN).to_pylist()
    if PARTITION_COLUMN in table.column_names:
        chosen = table.column(PARTITION_COLUMN).to_pylist()
        _check_partitions(chosen, partitions)
    else:
        chosen = partition_of(keys if any(k is not None for k in keys) else values)
    ranks = [pa.array(chosen, pa.int32()), *_ranks(table, order)]
    names = [str(number) for number in range(len(ranks))]
    # A stable sort: what is equal stays in the order in which it came.
    places = pc.sort_indices(
        pa.table(ranks, names=names), sort_keys=[(name, "ascending") for name in names]
    )
    rows = [(chosen[place], keys[place], values[place]) for place in places.to_pylist()]
    return SortedBatch(rows, Counter(chosen), digest_of(rows))


def number_records(
    batch: SortedBatch, before: SinkState, headers: HeaderPacker, timestamp_ms: int
) -> list[OutputRecord]:
    """Give each row its sequence, continuing from `before`, and its header."""
    records = []
    next_sequence = {p: before.next_sequence(p) for p in batch.counts}
    last_sequence = {p: next_sequence[p] + n - 1 for p, n in batch.counts.items()}
    for partition, key, value in batch.rows:
        sequence = next_sequence[partition]
        next_sequence[partition] = sequence + 1
        flag = Flag.LAST_OF_BATCH.value if sequence == last_sequence[partition] else 0
        header = headers.pack(flag, sequence)
        records.append(OutputRecord(partition, key, value, header, timestamp_ms))
    return records


def size_bytes(row: Row) -> int:
    """Size of key and value together."""
    _, key, value = row
    return len(key or b"") + len(value or b"")


def _ranks(table: pa.Table, order: Order) -> Iterator[pa.Array]:
    """For each thing to order by, a number for each row; lower numbers come first."""
    for term in order.by:
        ranks = _rank(table.column(ORDER_COLUMN + term.column))
        yield pc.negate(ranks) if term.is_descending else ranks
    if order.ties is Ties.CONTENT:
        yield from (_rank(table.column(name)) for name in (KEY_COLUMN, VALUE_COLUMN))


def _rank(column: pa.ChunkedArray) -> pa.Array:
    """Null before anything, NaN after every number, -0.0 as 0.0, text and binary by their bytes."""
    ranks = pc.rank(column, tiebreaker="dense").cast(pa.int64())
    return pc.if_else(pc.is_valid(column.combine_chunks()), ranks, 0)


def _check_partitions(chosen: Sequence[int | None], partitions: int) -> None:
    for partition in chosen:
        if partition is None or not 0 <= partition < partitions:
            raise RecordError(
                "the query chose a partition that the output topic does not have",
                expected=f"0 to {partitions - 1}",
                found=str(partition),
                then="stopping; nothing of this batch was written",
            )

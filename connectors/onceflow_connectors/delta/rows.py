"""From the rows of a batch to the Parquet files of a table. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onceflow.columns import Columns, Scalar, Type, parts_reader
from onceflow.errors import RecordError

_INDEXED_COLUMNS = 32
"""Columns whose least and greatest value are in the log, as with other writers of Delta."""
_INDEXED_LENGTH = 32
"""Longest text of such a value."""
_WRONG_VALUE = (TypeError, ValueError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class DataFile:
    """A file that is to be written.

    Args:
        partition: value of each column that the table is partitioned by, as text.
        statistics: of the rows, as the log of a table has them.
    """

    content: bytes
    partition: Mapping[str, str | None]
    statistics: str


def arrow_schema(columns: Columns) -> pa.Schema:
    """The columns as a new table gets them."""
    return pa.schema(
        [
            pa.field(name, kind.to_arrow(), nullable=name not in columns.required)
            for name, kind in columns.by_name.items()
        ]
    )


class RowWriter:
    """Makes files for one table.

    Args:
        required: columns in which the table takes no null.
        partition_by: columns of the table whose values are in the log instead of the files.
    """

    def __init__(
        self, columns: Columns, required: frozenset[str], partition_by: Sequence[str]
    ) -> None:
        names = columns.names
        self._columns = columns
        self._required = [names.index(name) for name in names if name in required]
        self._partition_by = [names.index(name) for name in partition_by]
        self._kept = [n for n, name in enumerate(names) if name not in partition_by]
        self._schema = pa.schema([arrow_schema(columns).field(n) for n in self._kept])
        self._readers = {n: _reader(kind) for n, kind in enumerate(columns.types)}

    def files(self, table: pa.Table) -> Sequence[DataFile]:
        """Make a file for each partition that rows belong to; rows keep their order in it.

        Raises:
            RecordError: the table does not take one of the rows.
        """
        try:
            return [self._file(key, part) for key, part in self._parts(table).items()]
        except _WRONG_VALUE as error:
            raise RecordError("the table does not take a row", found=str(error)) from error

    def refused(self, table: pa.Table) -> Mapping[int, str]:
        """Find the rows that the table does not take: index and reason."""
        found = {}
        for n in range(table.num_rows):
            try:
                self.files(table.slice(n, 1))
            except RecordError as error:
                found[n] = error.found
        return found

    def _parts(self, table: pa.Table) -> Mapping[tuple[str | None, ...], pa.Table]:
        if not self._partition_by:
            return {(): table} if table.num_rows else {}
        found: dict[tuple[Any, ...], list[int]] = {}
        values = [table.column(n).to_pylist() for n in self._partition_by]
        for row, key in enumerate(zip(*values, strict=True)):
            found.setdefault(key, []).append(row)
        return {
            tuple(map(self._partition_value, self._partition_by, key)): table.take(rows)
            for key, rows in found.items()
        }

    def _partition_value(self, column: int, value: Any) -> str | None:
        if value is None:
            if column in self._required:
                raise self._null(column)
            return None
        if value == "":
            # Delta reads it as null.
            name = self._columns.names[column]
            raise ValueError(f"{name}: empty text cannot be the value of a partition")
        if isinstance(value, bool):
            return "true" if value else "false"
        return value.isoformat() if isinstance(value, date) else str(value)

    def _null(self, column: int) -> ValueError:
        return ValueError(f"{self._columns.names[column]}: expected a value, found null")

    def _file(self, key: tuple[str | None, ...], part: pa.Table) -> DataFile:
        arrays = [self._column(n, part.column(n)) for n in self._kept]
        table = pa.table(arrays, schema=self._schema)
        content = BytesIO()
        pq.write_table(table, content, compression="snappy", store_schema=False)
        names = [self._columns.names[n] for n in self._partition_by]
        partition = dict(zip(names, key, strict=True))
        return DataFile(content.getvalue(), partition, statistics(table))

    def _column(self, column: int, values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if column in self._required and values.null_count:
            raise self._null(column)
        read = self._readers[column]
        if read is None:
            return values
        name, texts = self._columns.names[column], values.to_pylist()
        parts = [None if text is None else _read(name, read, text) for text in texts]
        return pa.array(parts, self._columns.types[column].to_arrow())


def statistics(table: pa.Table) -> str:
    """Numbers of rows and nulls, and least and greatest values, with which readers skip files."""
    found: dict[str, Any] = {"numRecords": table.num_rows}
    least, greatest, nulls = {}, {}, {}
    for name in table.column_names[:_INDEXED_COLUMNS]:
        column = table[name]
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if ends := _ends(column):
            least[name], greatest[name] = ends
    found |= {"minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(found)


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind)):
        return None
    low, high = pc.min_max(column).as_py().values()
    if low is None or (isinstance(low, str) and max(len(low), len(high)) > _INDEXED_LENGTH):
        return None
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return low, high


def _reader(kind: Type) -> Callable[[str], Any] | None:
    return None if isinstance(kind, Scalar) else parts_reader(kind)


def _read(name: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except _WRONG_VALUE as error:
        raise ValueError(f"{name}: {str(error) or type(error).__name__}") from None

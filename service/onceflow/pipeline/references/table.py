"""Reads a table from a file or from records, as a whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

from onceflow.pipeline.references.declaration import VALID_UNTIL, Reference

MAX_BYTES = 64 * 2**20
"""Of a file, or of the values of a topic: the driver holds the rows, and so does every executor."""
RECORD_KEY = "__key"
"""Column with the key of the record that a row is from, after those that queries see."""
_ROW = "__row"
_ARROW_ROW = re.compile(r"(In CSV column #\d+: )?Row #(?P<csv>\d+): |in row (?P<json>\d+)$")
"""How Arrow says where it has failed."""
_FOREVER: Mapping[str, Any] = {
    "timestamp": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    "date": date(9999, 12, 31),
}


Place = Callable[[int], str]
"""From the number of a row to what its user calls it."""


class RefusedTableError(ValueError):
    """Says in one sentence why there is no table."""


def table_of_file(reference: Reference, suffix: str, content: bytes) -> pa.Table:
    """Read a file.

    Args:
        reference: its declaration.
        suffix: one of `SUFFIXES`.
        content: all of it.

    Raises:
        RefusedTableError: it has other columns or values of other types, a row without a key, or
            two rows of one key.
    """
    if len(content) > MAX_BYTES:
        raise _too_large()
    if not content:
        raise RefusedTableError("it is empty")
    schema = pa.schema(reference.columns.to_arrow())

    def place(row: int) -> str:
        return _place(suffix, content, row)

    with _refused(place):
        rows = _READERS[suffix](content, schema)
        if rows.nbytes > MAX_BYTES:
            raise _too_large()
        return _finished(reference, rows, place)


def changed_table(
    reference: Reference, table: pa.Table | None, changes: Mapping[bytes, bytes | None]
) -> pa.Table:
    """Apply records to the table of a topic.

    Args:
        reference: its declaration.
        table: before them; None if there is none yet.
        changes: key of a record -> its value, which replaces the row of this key; None deletes it.

    Raises:
        RefusedTableError: a value is not an object of these columns, or two records have rows of
            one key.
    """
    schema = pa.schema(reference.columns.to_arrow())
    kept_schema = schema.append(pa.field(RECORD_KEY, pa.binary()))
    written = {key: value for key, value in changes.items() if value is not None}
    rows = _rows_of(written, schema)
    with _refused():
        if table is not None:
            old = table.select(kept_schema.names)
            is_changed = pc.is_in(old[RECORD_KEY], value_set=pa.array([*changes], pa.binary()))
            rows = pa.concat_tables([old.filter(pc.invert(is_changed)), rows])
        if rows.nbytes > MAX_BYTES:
            raise _too_large()
        keys = rows[RECORD_KEY]
        return _finished(reference, rows, lambda row: f"the record with key {keys[row].as_py()!r}")


def encoded(table: pa.Table) -> bytes:
    """A table as an Arrow stream: equal tables give equal bytes."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(out.getvalue())


def decoded(rows: bytes) -> pa.Table:
    """Inverse of `encoded`."""
    return pa.ipc.open_stream(rows).read_all()


@contextmanager
def _refused(place: Place | None = None) -> Iterator[None]:
    try:
        yield
    except RefusedTableError:
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        text = str(error.args[0] if error.args else error).splitlines()[0]
        if place is not None and (found := _ARROW_ROW.search(text)):
            # Of CSV, it counts the line of names, and begins with 1.
            row = int(found["csv"]) - 2 if found["csv"] else int(found["json"])
            text = f"{place(row)}: {_ARROW_ROW.sub('', text).strip()}"
        raise RefusedTableError(text) from error


def _csv(content: bytes, schema: pa.Schema) -> pa.Table:
    convert = arrow_csv.ConvertOptions(
        column_types=schema,
        include_columns=schema.names,
        # Text such as NA or NULL is a key as well as any other.
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    # In one thread, it tells the row that it cannot read.
    read = arrow_csv.ReadOptions(use_threads=False)
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    try:
        return arrow_csv.read_csv(
            io.BytesIO(content), read_options=read, parse_options=parse, convert_options=convert
        )
    except KeyError as error:
        names = next(csv.reader(io.StringIO(content.decode(errors="replace"))), [])
        missing = [name for name in schema.names if name not in names]
        raise _missing(missing) from error


def _lines(content: bytes, schema: pa.Schema) -> pa.Table:
    # It takes dates for numbers.
    read_as = [pa.string() if pa.types.is_date(kind) else kind for kind in schema.types]
    parse = arrow_json.ParseOptions(
        explicit_schema=pa.schema(zip(schema.names, read_as, strict=True)),
        unexpected_field_behavior="ignore",
    )
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    found = arrow_json.read_json(io.BytesIO(content), read_options=read, parse_options=parse)
    return found.select(schema.names).cast(schema)


def _parquet(content: bytes, schema: pa.Schema) -> pa.Table:
    file = parquet.ParquetFile(pa.BufferReader(content))
    if missing := [name for name in schema.names if name not in file.schema_arrow.names]:
        raise _missing(missing)
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    if sum(group.total_byte_size for group in groups) > MAX_BYTES:
        raise _too_large()
    return file.read(schema.names).select(schema.names).cast(schema)


def _too_large() -> RefusedTableError:
    return RefusedTableError(f"it has more than {MAX_BYTES // 2**20} MiB")


def _missing(names: Sequence[str]) -> RefusedTableError:
    return RefusedTableError(f"it has no column {', '.join(f'`{name}`' for name in names)}")


_READERS = {".csv": _csv, ".jsonl": _lines, ".parquet": _parquet}


def _rows_of(values: Mapping[bytes, bytes], schema: pa.Schema) -> pa.Table:
    """The values as rows, with the keys of their records."""
    keys = pa.field(RECORD_KEY, pa.binary())
    if not values:
        return schema.append(keys).empty_table()
    try:
        with _refused():
            rows = _lines(
                b"\n".join(value.replace(b"\n", b" ") for value in values.values()), schema
            )
    except RefusedTableError:
        # Again, one by one, to find which.
        for key, value in values.items():
            _one_row(key, value, schema)
        raise
    if len(rows) != len(values):
        for key, value in values.items():
            _one_row(key, value, schema)
    return rows.append_column(keys, pa.array([*values], pa.binary()))


def _one_row(key: bytes, value: bytes, schema: pa.Schema) -> None:
    try:
        with _refused():
            is_one = isinstance(json.loads(value), dict) and len(_lines(value, schema)) == 1
    except RefusedTableError as error:
        raise RefusedTableError(f"the record with key {key!r}: {error}") from error
    if not is_one:
        raise RefusedTableError(f"the record with key {key!r} is not a JSON object")


def _finished(reference: Reference, rows: pa.Table, place: Place) -> pa.Table:
    """The rows in the order of their keys, each with the end of what is valid."""
    rows = rows.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    for name in {*reference.row_key, *reference.columns.required}:
        if rows[name].null_count:
            row = pc.index(pc.is_null(rows[name]), value=True).as_py()
            raise RefusedTableError(f"{place(row)} has no `{name}`")
    rows = rows.sort_by([(name, "ascending") for name in (*reference.row_key, _ROW)])
    same = _like_the_next(rows, reference.row_key)
    if pc.any(same).as_py():
        at = pc.index(same, value=True).as_py()
        first, second = (place(row) for row in rows[_ROW][at : at + 2].to_pylist())
        names = ", ".join(f"{name} {rows[name][at].as_py()}" for name in reference.row_key)
        raise RefusedTableError(f"{first} and {second} have the same key: {names}")
    more = [name for name in rows.column_names if name not in {*reference.columns.names, _ROW}]
    found = rows.select(reference.columns.names)
    if reference.valid_from is not None:
        found = found.append_column(VALID_UNTIL, _ends(reference, reference.valid_from, rows))
    for name in more:
        found = found.append_column(name, rows[name])
    return found.combine_chunks()


def _ends(reference: Reference, valid_from: str, rows: pa.Table) -> pa.ChunkedArray:
    starts = rows[valid_from].combine_chunks()
    kind = reference.columns.by_name[valid_from].ddl
    forever = pa.scalar(_FOREVER[kind], starts.type)
    following = pa.concat_arrays([starts[1:], pa.array([forever.as_py()], starts.type)])
    return pc.if_else(_like_the_next(rows, reference.key), following[: len(starts)], forever)


def _like_the_next(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """For each row, whether the next one has the same in these columns."""
    if not len(rows):
        return pa.array([], pa.bool_())
    found = pa.array([True] * (len(rows) - 1) + [False])
    for name in names:
        column = rows[name].combine_chunks()
        alike = pc.equal(column[:-1], column[1:])
        found = pc.and_(found, pa.concat_arrays([alike, pa.array([False])]))
    return found


def _place(suffix: str, content: bytes, row: int) -> str:
    """A row of a file as its user finds it."""
    match suffix:
        case ".csv":
            return f"line {_nth(_csv_lines(content), row + 1)}"
        case ".jsonl":
            return f"line {_nth(_json_lines(content), row)}"
    return f"row {row + 1}"


def _csv_lines(content: bytes) -> Iterator[int]:
    reader = csv.reader(io.StringIO(content.decode(errors="replace"), newline=""))
    begin = 1
    for fields in reader:
        if fields:
            yield begin
        begin = reader.line_num + 1


def _json_lines(content: bytes) -> Iterator[int]:
    return (n for n, line in enumerate(content.splitlines(), 1) if line.strip())


def _nth(lines: Iterable[int], wanted: int) -> int:
    return next(line for at, line in enumerate(lines) if at == wanted)

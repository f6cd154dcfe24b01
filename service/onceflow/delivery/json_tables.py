"""Many JSON values at once to columns of Arrow, or not at all if any of them is odd.

What it takes, `decoding.Decoder` takes too, and reads the same values from it: a test compares the
two on invented payloads. It refuses more, and never says why; that is for the decoder, which costs
ten times as much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from onceflow.columns import Columns
from onceflow.columns.tables import table_schema

_MOST_BYTES = 2**31 - 2
"""Arrow reads a text as one block, which has this bound."""
_MOST_DEPTH = 400
"""Python's parser refuses what is nested some 900 times."""
_MOST_DIGITS = 4_000
"""Python's parser refuses whole numbers of more than 4,300."""
_DIGITS = bytes(ord("0") if chr(n) in "0123456789" else ord(" ") for n in range(256))
_NO_NUMBER = re.compile(rb"[:,\[\s-](?:NaN|Inf)")
"""What Arrow takes for a number, but JSON does not have. Finds some texts, too."""
_EXACT = 2**53
"""Not every whole number beyond it is a double."""
_DAYS = (-719_162, 2_932_896)
"""The first day and the last day that Python has, from 1970 on."""
_SECONDS = ((_DAYS[0] + 2) * 86_400, (_DAYS[1] - 2) * 86_400)
"""Moments that Python has in every zone."""
_FIRST, _LAST = itemgetter(0), itemgetter(-1)


class OddError(ValueError):
    """One of the values is for the decoder to look at."""


class JsonTables:
    """Reads objects of the same columns. `makes` tells whether it can read these columns at all.

    Args:
        required: names of columns that may not be null.
    """

    def __init__(self, columns: Columns, required: frozenset[str]) -> None:
        names = [getattr(kind, "name", "") for kind in columns.types]
        self.makes = all(name in _COLUMNS for name in names)
        self._required = required
        self._schema = table_schema(columns)
        self._read_as = pa.schema(
            [
                (field.name, _COLUMNS.get(name, (field.type,))[0])
                for field, name in zip(self._schema, names, strict=True)
            ]
        )
        self._checks = [_COLUMNS[name][1] for name in names] if self.makes else []

    def table(self, payloads: Sequence[bytes | None]) -> pa.Table:
        """Read one object from each payload.

        Raises:
            OddError: at least one of them is not what this takes.
        """
        text = _one_text(payloads)
        try:
            parsed = pj.read_json(
                pa.BufferReader(text),
                pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
                pj.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="ignore"),
            )
            _require(parsed.num_rows == len(payloads))
            arrays = [
                check(parsed.column(field.name), field.type)
                for check, field in zip(self._checks, self._schema, strict=True)
            ]
        except pa.ArrowInvalid as error:
            raise OddError from error
        table = pa.table(arrays, schema=self._schema)
        _require(all(not table[name].null_count for name in self._required))
        return table


def _require(condition: bool) -> None:
    if not condition:
        raise OddError


def _one_text(payloads: Sequence[bytes | None]) -> bytes:
    """One object in each line.

    Records must not shift: two objects in one record, and another one spread over two, would be as
    many rows as records. If all begin with `{` and end with `}`, the border of two records reads
    `}`, line feed, `{`. No string holds a line feed, and inside of an object `{` never follows `}`:
    so each border is one between two rows, and equal counts mean that each record is one row.
    """
    given = [payload for payload in payloads if payload]
    _require(len(given) == len(payloads))
    _require({*map(_FIRST, given)} == {ord("{")} and {*map(_LAST, given)} == {ord("}")})
    text = b"\n".join(given)
    _require(len(text) <= _MOST_BYTES)
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise OddError from error
    if b"NaN" in text or b"Inf" in text:
        _require(_NO_NUMBER.search(text) is None)
    longest = max(map(len, given))
    if longest > _MOST_DEPTH and _opened(text) - len(given) > _MOST_DEPTH:
        _require(max(map(_opened, given)) <= _MOST_DEPTH)
    if longest > _MOST_DIGITS:
        _require(b"0" * _MOST_DIGITS not in text.translate(_DIGITS))
    return text


def _opened(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _as_it_is(column: pa.ChunkedArray, _: pa.DataType) -> pa.ChunkedArray:
    return column


def _text(column: pa.ChunkedArray, _: pa.DataType) -> pa.ChunkedArray:
    column.validate(full=True)  # the parser lets half of a surrogate pair pass
    return column


def _number(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    _require_within(column, (1 - _EXACT, _EXACT - 1))
    return column.cast(kind, safe=False)


def _day(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    days = column.cast(kind)
    _require_within(days.cast(pa.int32()), _DAYS)
    _require(days.cast(pa.string()).equals(column))
    return days


def _moment(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    moments = column.cast(kind)
    least, most = _SECONDS
    _require_within(moments.cast(pa.int64()), (least * 1_000_000, most * 1_000_000))
    return moments


def _require_within(column: pa.ChunkedArray, bounds: tuple[int, int]) -> None:
    low, high = pc.min_max(column).as_py().values()
    _require(low is None or (bounds[0] <= low and high <= bounds[1]))


_Check = Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray]
_COLUMNS: Mapping[str, tuple[pa.DataType, _Check]] = {
    "boolean": (pa.bool_(), _as_it_is),
    "tinyint": (pa.int8(), _as_it_is),
    "smallint": (pa.int16(), _as_it_is),
    "int": (pa.int32(), _as_it_is),
    "bigint": (pa.int64(), _as_it_is),
    # As Python does: first to a double, then to a float.
    "float": (pa.float64(), _number),
    "double": (pa.float64(), _number),
    "string": (pa.string(), _text),
    "date": (pa.string(), _day),
    # Not by Arrow's parser, which takes a day for its midnight.
    "timestamp": (pa.string(), _moment),
    "timestamp_ntz": (pa.string(), _moment),
}
"""Of each type without parts that Arrow's parser reads: as what, and what is done then. Not
DECIMAL, which that parser takes from text, too, and not BINARY, which is base64."""

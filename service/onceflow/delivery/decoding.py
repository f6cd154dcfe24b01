"""From records to the values of their rows. Pure.

Values are as `onceflow.columns.json_values` reads them. Fields that are not columns are left out,
and columns without a field are null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from onceflow.columns import Array, Columns, Scalar, Type, scalar_reader
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Move, Values
from onceflow.delivery.formats import Fields, PayloadFormat

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """Records as a target takes them, and those that cannot be decoded with the reason.

    Args:
        rows: of each record, for a target that takes rows.
        table: of all records, for a target that takes tables.
        deleted: indices of records that delete the row of their key.
    """

    records: Sequence[Record]
    rows: Sequence[Values] = ()
    table: pa.Table | None = None
    deleted: frozenset[int] = frozenset()
    unreadable: Sequence[tuple[Record, str]] = ()

    def batch(self, moves: Sequence[Move]) -> Batch:
        """The batch of these records."""
        return Batch(self.records, self.rows, moves, self.deleted, self.table)

    def without(self, refused: frozenset[int]) -> Decoded:
        """The same without the records of these indices."""
        kept = [n for n in range(len(self.records)) if n not in refused]
        return replace(
            self,
            records=[self.records[n] for n in kept],
            rows=[self.rows[n] for n in kept] if self.rows else (),
            table=None if self.table is None else self.table.take(kept),
            deleted=frozenset(new for new, old in enumerate(kept) if old in self.deleted),
        )


class Decodes(Protocol):
    """Decodes the records of a delivery: `Decoder`, or `TableDecoder`."""

    def decoded(self, records: Sequence[Record]) -> Decoded:
        """Decode records, and set aside those that cannot be."""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    ddl: str
    read: Callable[[Any], Any]
    is_required: bool
    read_key: Callable[[Any], Any]


class Decoder:
    """Decodes records of the same columns.

    Args:
        required: names of columns that may not be null.
        deletes_by: columns whose values a record without a value has in its key; empty if such a
            record is to be rejected.
        makes_rows: whether there are rows. Otherwise records without a value are as good as others,
            and a payload is only checked, and not even that if there are no columns.
        payload: how payloads are read; left out, they are JSON.
    """

    def __init__(
        self,
        columns: Columns,
        required: frozenset[str],
        deletes_by: Sequence[str],
        *,
        makes_rows: bool = True,
        payload: PayloadFormat | None = None,
    ) -> None:
        self._makes_rows = makes_rows
        reader = payload.reader if payload else _reader
        self._columns = [
            _Column(name, kind.ddl, reader(kind), name in required, _reader(kind))
            for name, kind in columns.by_name.items()
        ]
        self._fields = payload.fields if payload else self._json_fields
        self._deletes_by = deletes_by
        is_exact = any(kind.ddl.startswith("decimal") for kind in columns.types)
        # A decimal must not pass through a double.
        exact = Decimal if is_exact else None
        self._parse = json.JSONDecoder(parse_float=exact, parse_constant=_no_number).decode

    def decoded(self, records: Sequence[Record]) -> Decoded:
        """Decode records, and set aside those that cannot be."""
        good: list[Record] = []
        rows: list[Values] = []
        deleted: set[int] = set()
        unreadable: list[tuple[Record, str]] = []
        for record in records:
            try:
                row = self.decode(record.key, record.value)
            except ValueError as error:
                unreadable.append((record, str(error)))
                continue
            good.append(record)
            if row is not None:
                if record.value is None:
                    deleted.add(len(rows))
                rows.append(row)
        return Decoded(good, rows, None, frozenset(deleted), unreadable)

    def decode(self, key: bytes | None, payload: bytes | None) -> Values | None:
        """Decode a record.

        Returns:
            The values of its row; None if there are no rows.

        Raises:
            ValueError: says what was expected and found.
        """
        if self._makes_rows:
            return self.deletion(key) if payload is None else self.row(payload)
        if self._columns and payload is not None:
            self.row(payload)
        return None

    def row(self, payload: bytes) -> Values:
        """Decode a payload.

        Raises:
            ValueError: says what was expected and found.
        """
        fields = self._fields(payload)
        values = []
        for column in self._columns:
            value = fields.get(column.name)
            if value is not None:
                value = _read(column, value)
            elif column.is_required:
                raise ValueError(f"{column.name}: expected a value, found null")
            values.append(value)
        return tuple(values)

    def _json_fields(self, payload: bytes) -> Fields:
        try:
            fields = self._parse(payload.decode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected JSON, found {type(error).__name__}: {error}") from None
        if not isinstance(fields, dict):
            found = type(fields).__name__
            raise ValueError(f"expected a JSON object, found {found}")  # noqa: TRY004  a bad value
        return fields

    def deletion(self, key: bytes | None) -> Values:
        """Decode the key of a record without a value; only the columns of the key have values.

        Of one column the key is the text, of several a JSON object.

        Raises:
            ValueError: such records are not expected, or the key is not of these columns.
        """
        if not self._deletes_by:
            raise ValueError("expected a value, found none (a tombstone)")
        if key is None:
            raise ValueError("expected a key that names the row to delete, found none")
        try:
            found = key.decode()
            if len(self._deletes_by) == 1:
                fields = {self._deletes_by[0]: found}
            else:
                fields = self._parse(found)
                fields = {name: fields[name] for name in self._deletes_by}
            return tuple(
                self._key_value(column, fields[column.name]) if column.name in fields else None
                for column in self._columns
            )
        except (TypeError, ValueError, KeyError, ArithmeticError) as error:
            expected = ", ".join(self._deletes_by)
            raise ValueError(f"key: expected {expected}, found {key!r:.60}: {error}") from None

    def _key_value(self, column: _Column, value: Any) -> Any:
        """A number or a truth value is text in a key of one column."""
        try:
            return column.read_key(value)
        except (TypeError, ValueError):
            return _read(replace(column, read=column.read_key), self._parse(value))


def _no_number(text: str) -> None:
    """Python's decoder takes these, which JSON does not have."""
    raise ValueError(f"JSON has no number {text}")


def _read(column: _Column, value: Any) -> Any:
    try:
        return column.read(value)
    except (TypeError, ValueError, ArithmeticError) as error:
        found = f"{column.name}: expected {column.ddl}, found {type(value).__name__} {value!r:.60}"
        raise ValueError(f"{found} ({error})" if str(error) else found) from None


def _reader(kind: Type) -> Callable[[Any], Any]:
    """Make the function that reads a JSON value that is not null."""
    if isinstance(kind, Scalar):
        return scalar_reader(kind)
    return partial(_parts, list if isinstance(kind, Array) else dict)


def _parts(expected: type, value: Any) -> str:
    if not isinstance(value, expected):
        raise TypeError
    return json.dumps(value, default=float)

"""From many records to one table of Arrow, for targets that take tables."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.columns import Columns
from onceflow.columns.tables import table_of
from onceflow.contracts.record import Record
from onceflow.delivery.decoding import Decoded, Decoder
from onceflow.delivery.json_tables import JsonTables, OddError

FEW = 16
"""As few records as these are decoded one by one, if one of them is odd."""


class TableDecoder:
    """Decodes many records at once, and one by one only around those that are odd.

    Args:
        decoder: says what is decoded, and to what.
        json: decodes many at once; None if payloads are not JSON.
    """

    def __init__(self, decoder: Decoder, columns: Columns, json: JsonTables | None) -> None:
        self._decoder = decoder
        self._columns = columns
        self._json = json if json is not None and json.makes else None

    def decoded(self, records: Sequence[Record]) -> Decoded:
        """Decode records, and set aside those that cannot be."""
        parts = self._parts(records, self._json) if self._json else [self._one_by_one(records)]
        if len(parts) == 1:
            return parts[0]
        deleted: set[int] = set()
        good: list[Record] = []
        for part in parts:
            deleted.update(len(good) + n for n in part.deleted)
            good += part.records
        return Decoded(
            good,
            table=pa.concat_tables([part.table for part in parts]),
            deleted=frozenset(deleted),
            unreadable=[each for part in parts for each in part.unreadable],
        )

    def _parts(self, records: Sequence[Record], json: JsonTables) -> Sequence[Decoded]:
        """Decode all at once; halves of them if that fails."""
        if not records:
            return [self._one_by_one(records)]
        try:
            return [Decoded(records, table=json.table([each.value for each in records]))]
        except OddError:
            if len(records) <= FEW:
                return [self._one_by_one(records)]
        middle = len(records) // 2
        return [*self._parts(records[:middle], json), *self._parts(records[middle:], json)]

    def _one_by_one(self, records: Sequence[Record]) -> Decoded:
        found = self._decoder.decoded(records)
        table = table_of(self._columns, found.rows)
        return Decoded(found.records, (), table, found.deleted, found.unreadable)

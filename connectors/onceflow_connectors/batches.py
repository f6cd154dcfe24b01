"""From the records of a source to the Arrow batches that it yields. For any kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, SourceSpec
from onceflow.errors import ConfigError, RecordError
from onceflow_connectors.decoders import decode, decoder_for, payload_schema

Record = TypeVar("Record")
Columns: TypeAlias = Mapping[str, Callable[[Record], Any]]
"""For each name in `META_COLUMNS`, how to take its value from a record of the source."""


class BatchBuilder(Generic[Record]):
    """Makes Arrow batches with exactly the schema of a spec; decodes `_value` by its format."""

    def __init__(self, spec: SourceSpec, columns: Columns[Record]) -> None:
        _check_meta_columns(spec)
        self._schema = spec.schema
        self._columns = columns
        self._payload = payload_schema(spec)
        self._decoder = decoder_for(spec)

    def batch(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Decode records. Payloads are looked at only if a column comes from them.

        Raises:
            RecordError: a payload cannot be decoded, and `REJECT_COLUMN` is not asked for; names
                its place.
        """
        columns = self._payload_columns(records) if self._payload.names else {}
        for name in self._schema.names:
            if name in META_COLUMNS:
                values = [self._columns[name](record) for record in records]
                columns[name] = pa.array(values, META_COLUMNS[name])
        if REJECT_COLUMN in self._schema.names:
            columns.setdefault(REJECT_COLUMN, pa.nulls(len(records), pa.string()))
        arrays = [columns[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _payload_columns(self, records: Sequence[Record]) -> dict[str, pa.Array]:
        payloads = [self._columns["_value"](record) for record in records]
        arrays, reasons = decode(self._decoder, payloads, self._payload)
        columns = dict(zip(self._payload.names, arrays, strict=True))
        if REJECT_COLUMN in self._schema.names:
            return {**columns, REJECT_COLUMN: reasons}
        if reasons.null_count < len(reasons):
            index = reasons.is_valid().index(True).as_py()
            raise RecordError(
                "a record cannot be decoded",
                subject=self._place(records[index]),
                found=reasons[index].as_py(),
                then="stopping; nothing of this batch was written",
            )
        return columns

    def _place(self, record: Record) -> str:
        topic, partition, offset = (
            self._columns[name](record) for name in ("_topic", "_partition", "_offset")
        )
        return f"offset {offset} of {topic}-{partition}"


def _check_meta_columns(spec: SourceSpec) -> None:
    for field in spec.schema:
        if field.name in META_COLUMNS and field.type != META_COLUMNS[field.name]:
            raise ConfigError(
                "a column that comes from the record itself has another type",
                subject=f"{field.name} of source {spec.name}",
                expected=str(META_COLUMNS[field.name]),
                found=str(field.type),
            )

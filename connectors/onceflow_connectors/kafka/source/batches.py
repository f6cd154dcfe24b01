"""From records of Kafka to the Arrow batches that a source yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import Message

from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, SourceSpec
from onceflow.errors import ConfigError, RecordError
from onceflow_connectors.kafka.source.decoders import (
    decode,
    decode_or_reject,
    decoder_for,
    payload_schema,
)
from onceflow_connectors.kafka.source.decoders.values import PayloadError

WORTHWHILE_RECORDS = 1_000
"""From here on, decoding costs more than what a batch costs by itself (measured: 0.1 ms)."""


def merged(chunks: Iterable[Sequence[Message]]) -> Iterator[Sequence[Message]]:
    """Join small chunks: a batch costs more than its few records."""
    held: Sequence[Message] = ()
    for chunk in chunks:
        held = [*held, *chunk] if held else chunk
        if len(held) >= WORTHWHILE_RECORDS:
            yield held
            held = ()
    if held:
        yield held


MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The end of the year 9999. What is later was written in another unit than milliseconds, and its
microseconds need not fit into 64 bits."""


def _timestamp_us(record: Message) -> int | None:
    """Null where there is none: as event time, that is a reason to reject the record."""
    _, timestamp_ms = record.timestamp()
    return timestamp_ms * 1000 if 0 <= timestamp_ms <= MAX_TIMESTAMP_MS else None


def _headers(record: Message) -> list[dict[str, object]]:
    # A plain header is (name, value); the annotation of the client allows a mapping, too.
    return [{"key": each[0], "value": each[1]} for each in record.headers() or ()]


_META: Mapping[str, Callable[[Message], object]] = {
    "_key": lambda record: record.key(),
    "_topic": lambda record: record.topic(),
    "_partition": lambda record: record.partition(),
    "_offset": lambda record: record.offset(),
    "_timestamp": _timestamp_us,
    "_value": lambda record: record.value(),
    "_headers": _headers,
}
"""Where the columns of `META_COLUMNS` come from."""


class BatchBuilder:
    """Makes Arrow batches with exactly the schema of a spec.

    Args:
        spec: of the source.
    """

    def __init__(self, spec: SourceSpec) -> None:
        _check_meta_columns(spec)
        self._schema = spec.schema
        self._payload = payload_schema(spec)
        self._decoder = decoder_for(spec)

    def batch(self, records: Sequence[Message]) -> pa.RecordBatch:
        """Decode records. Payloads are looked at only if a column comes from them.

        Raises:
            RecordError: a payload cannot be decoded, and `REJECT_COLUMN` is not asked for; names
                its place.
        """
        columns = self._payload_columns(records) if self._payload.names else {}
        for name in self._schema.names:
            if name in _META:
                values = [_META[name](record) for record in records]
                columns[name] = pa.array(values, META_COLUMNS[name])
        if REJECT_COLUMN in self._schema.names:
            columns.setdefault(REJECT_COLUMN, pa.nulls(len(records), pa.string()))
        arrays = [columns[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _payload_columns(self, records: Sequence[Message]) -> dict[str, pa.Array]:
        payloads = [record.value() for record in records]
        if REJECT_COLUMN in self._schema.names:
            arrays, reasons = decode_or_reject(self._decoder, payloads, self._payload)
            named = zip(self._payload.names, arrays, strict=True)
            return {**dict(named), REJECT_COLUMN: reasons}
        try:
            arrays = decode(self._decoder, payloads)
        except PayloadError as error:
            bad = records[error.index]
            raise RecordError(
                "a record cannot be decoded",
                subject=f"offset {bad.offset()} of {bad.topic()}-{bad.partition()}",
                found=error.reason,
                then="stopping; nothing of this batch was written",
            ) from error
        return dict(zip(self._payload.names, arrays, strict=True))


def _check_meta_columns(spec: SourceSpec) -> None:
    for field in spec.schema:
        if field.name in META_COLUMNS and field.type != META_COLUMNS[field.name]:
            raise ConfigError(
                "a column that comes from the record itself has another type",
                subject=f"{field.name} of source {spec.name}",
                expected=str(META_COLUMNS[field.name]),
                found=str(field.type),
            )

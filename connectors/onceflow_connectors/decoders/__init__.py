"""Payloads to Arrow columns, many records at once. One module for each format.

A decoder takes a chunk as a whole or not at all. If it refuses, the chunk is halved again and
again, so that one bad record costs a dozen look-ups and is named by its place. For this, what a
decoder makes of a record must not depend on the records around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, SourceSpec
from onceflow.errors import ConfigError
from onceflow_connectors.decoders.avro_format import AvroDecoder
from onceflow_connectors.decoders.csv_format import CsvDecoder
from onceflow_connectors.decoders.json_format import JsonDecoder
from onceflow_connectors.decoders.plain_format import PlainDecoder
from onceflow_connectors.decoders.values import PayloadError

Payloads: TypeAlias = Sequence[bytes | None]


class Decoder(Protocol):
    """Decodes payloads of one format."""

    def columns(self, payloads: Payloads) -> Sequence[pa.Array]:
        """One array for each payload column of the spec, in its order and with its type.

        Raises:
            PayloadError: at least one payload cannot be decoded; if it is the only one, why.
        """


_DECODERS: Mapping[str, Callable[[SourceSpec, pa.Schema], Decoder]] = {
    "json": lambda _, schema: JsonDecoder(schema),
    "csv": lambda spec, schema: CsvDecoder(schema, spec.format_options),
    "text": lambda _, schema: PlainDecoder(schema, pa.string()),
    "binary": lambda _, schema: PlainDecoder(schema, pa.binary()),
    "avro": lambda spec, schema: AvroDecoder(schema, spec.format_options),
}


def decoder_for(spec: SourceSpec) -> Decoder:
    """The decoder of a spec's payload columns.

    Raises:
        ConfigError: the format is unknown, or its options or columns do not fit.
    """
    if spec.format not in _DECODERS:
        raise ConfigError(
            "unknown format",
            subject=spec.name,
            expected=f"one of {', '.join(sorted(_DECODERS))}",
            found=spec.format,
        )
    return _DECODERS[spec.format](spec, payload_schema(spec))


def payload_schema(spec: SourceSpec) -> pa.Schema:
    """The columns that come from payloads."""
    others = {*META_COLUMNS, REJECT_COLUMN}
    return pa.schema([field for field in spec.schema if field.name not in others])


def decode(
    decoder: Decoder, payloads: Payloads, schema: pa.Schema
) -> tuple[Sequence[pa.Array], pa.Array]:
    """Decode all payloads, of which there is at least one; a bad one becomes nulls.

    Returns:
        The columns of `schema`, and the reason why a payload is bad, null where it is not.
    """
    try:
        return decoder.columns(payloads), pa.nulls(len(payloads), pa.string())
    except PayloadError as error:
        if len(payloads) == 1:
            return [pa.nulls(1, field.type) for field in schema], pa.array([error.reason])
    middle = len(payloads) // 2
    halves = [decode(decoder, half, schema) for half in (payloads[:middle], payloads[middle:])]
    columns = zip(*(arrays for arrays, _ in halves), strict=True)
    reasons = pa.concat_arrays([reasons for _, reasons in halves])
    return [pa.concat_arrays(column) for column in columns], reasons

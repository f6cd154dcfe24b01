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
from onceflow_connectors.decoders.plain_format import BinaryDecoder, TextDecoder
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
    "text": lambda _, schema: TextDecoder(schema),
    "binary": lambda _, schema: BinaryDecoder(schema),
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


def decode(decoder: Decoder, payloads: Payloads) -> Sequence[pa.Array]:
    """Decode all payloads, of which there is at least one.

    Raises:
        PayloadError: names the first bad one by its index.
    """
    try:
        return decoder.columns(payloads)
    except PayloadError:
        if len(payloads) == 1:
            raise
    middle = len(payloads) // 2
    first = decode(decoder, payloads[:middle])
    try:
        second = decode(decoder, payloads[middle:])
    except PayloadError as error:
        raise PayloadError(error.reason, middle + error.index) from error.__cause__
    return _joined(first, second)


def decode_or_reject(
    decoder: Decoder, payloads: Payloads, schema: pa.Schema
) -> tuple[Sequence[pa.Array], pa.Array]:
    """Decode all payloads, of which there is at least one; a bad one becomes nulls.

    Args:
        decoder: of these columns.
        payloads: to decode.
        schema: of the columns.

    Returns:
        The columns, and the reason why a payload is bad, null where it is not.
    """
    try:
        return decoder.columns(payloads), pa.nulls(len(payloads), pa.string())
    except PayloadError as error:
        if len(payloads) == 1:
            return [pa.nulls(1, field.type) for field in schema], pa.array([error.reason])
    middle = len(payloads) // 2
    first, first_reasons = decode_or_reject(decoder, payloads[:middle], schema)
    second, second_reasons = decode_or_reject(decoder, payloads[middle:], schema)
    return _joined(first, second), pa.concat_arrays([first_reasons, second_reasons])


def _joined(first: Sequence[pa.Array], second: Sequence[pa.Array]) -> Sequence[pa.Array]:
    return [pa.concat_arrays(halves) for halves in zip(first, second, strict=True)]

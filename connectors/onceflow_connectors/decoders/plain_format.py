"""Payloads that are one value: text and binary. A record without a payload is a null."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.errors import ConfigError
from onceflow_connectors.decoders.values import PayloadError


class BinaryDecoder:
    """The payload as it is."""

    def __init__(self, schema: pa.Schema) -> None:
        _check_single_column(schema, pa.binary())
        self._schema = schema

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        """Never refuses."""
        return [pa.array(payloads, field.type) for field in self._schema]


class TextDecoder:
    """The payload as UTF-8."""

    def __init__(self, schema: pa.Schema) -> None:
        _check_single_column(schema, pa.string())
        self._schema = schema

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        try:
            return [pa.array(payloads, pa.binary()).cast(field.type) for field in self._schema]
        except pa.ArrowInvalid as error:
            raise PayloadError(f"not UTF-8: {error}") from error


def _check_single_column(schema: pa.Schema, wanted: pa.DataType) -> None:
    if len(schema) > 1 or any(field.type != wanted for field in schema):
        raise ConfigError(
            "the format has a single column",
            expected=f"one payload column of type {wanted}",
            found=", ".join(f"{field.name} {field.type}" for field in schema),
        )

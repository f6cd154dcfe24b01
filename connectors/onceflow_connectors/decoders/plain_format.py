"""Payloads that are one value: text in UTF-8, or bytes. A record without a payload is a null."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.errors import ConfigError
from onceflow_connectors.decoders.values import PayloadError


class PlainDecoder:
    """The payload as it is, in at most one column of type `wanted`: STRING or BINARY."""

    def __init__(self, schema: pa.Schema, wanted: pa.DataType) -> None:
        if len(schema) > 1 or any(field.type != wanted for field in schema):
            raise ConfigError(
                "the format has a single column",
                expected=f"one payload column of type {wanted}",
                found=", ".join(f"{field.name} {field.type}" for field in schema),
            )
        self._schema = schema

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        """Refuse text that is not UTF-8."""
        try:
            return [pa.array(payloads, pa.binary()).cast(field.type) for field in self._schema]
        except pa.ArrowInvalid as error:
            raise PayloadError(f"not UTF-8: {error}") from error

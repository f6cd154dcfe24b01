"""How payloads are encoded: the part that sources and sinks have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import fault, not_yet
from onceflow.errors import ConfigError
from onceflow.pipeline.text.files import MAX_SCHEMA_BYTES, read_text, require_inside
from onceflow.protocol.ledger import canonical_json

Format = Annotated[Literal["json", "csv", "text", "binary", "avro"], not_yet("protobuf")]
SINGLE_COLUMN_SCHEMAS = {"text": "value STRING", "binary": "value BINARY"}
"""Formats whose payload is one value, and the schema that they have by themselves."""


class Avro(Block):
    """How Avro payloads are laid out: plain datums of one schema."""

    schema_file: str = Field(
        min_length=1,
        description="File with the Avro schema, in the folder of the pipeline file or below.",
    )

    def read(self, folder: Path) -> str:
        """The schema, as canonical JSON.

        Raises:
            ConfigError: the file lies elsewhere, cannot be read, or is not the schema of a record.
        """
        path = folder / self.schema_file
        require_inside(path, folder)
        try:
            schema = json.loads(read_text(path, MAX_SCHEMA_BYTES))
        except (ValueError, RecursionError) as error:
            raise ConfigError("the Avro schema is not JSON", subject=str(path)) from error
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise ConfigError(
                "the Avro schema is not that of a record",
                subject=str(path),
                expected='an object with "type": "record"',
            )
        return canonical_json(schema)


def wrong_avro(given: Mapping[str, Any]) -> Iterator[Combination]:
    """An Avro schema exactly where the format is Avro; for both directions."""
    is_avro = given.get("format", "json") == "avro"
    if is_avro and "avro" not in given:
        yield (
            ("format",),
            fault(
                "format avro needs a schema",
                suggestion="Add `avro: {schema_file: ...}` next to it.",
            ),
        )
    if "avro" in given and not is_avro:
        yield ("avro",), fault("`avro` without `format: avro`", suggestion="Set the format.")

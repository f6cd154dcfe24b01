"""The block `from` of a delivery file: which topics are read, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from onceflow.columns import NO_COLUMNS, Columns, parse_columns
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import ColumnsDdl, IdleMs, StartingPoint, TopicName, without_default
from onceflow.delivery.formats import PayloadFormat, payload_format
from onceflow.pipeline.file.formats import SINGLE_COLUMN_SCHEMAS, Avro, Format, wrong_avro


class From(Block):
    """The topics, and how their records are read."""

    topics: tuple[TopicName, ...] = Field(min_length=1, strict=False, description="Topics to read.")
    format: str = Field(default="json", description="How the payload of a record is decoded.")
    ddl: ColumnsDdl | None = Field(
        default=None,
        alias="schema",
        description="Columns of a row and their types, as Spark DDL, such as"
        ' "page STRING, views BIGINT NOT NULL". Each is a field of the payload and a column of'
        " the target of the same name. Required by targets with columns. Others take records as"
        " they came; then records that do not fit are rejected.",
    )
    starting: StartingPoint = Field(
        default="earliest",
        description="Where a delivery begins that has never run: `earliest`, `latest`, or"
        " `{timestamp: 2026-11-01T00:00:00Z}`. Afterwards its position decides.",
    )
    foreign: Literal["fail", "deliver", "drop"] = Field(
        default="fail",
        description="What becomes of a record that no pipeline of Onceflow wrote.",
    )
    on_gap: Literal["fail", "continue"] = Field(
        default="fail",
        description="What happens where records of a pipeline are missing in the topic, because"
        " retention or compaction removed them.",
    )

    takeover_after_ms: IdleMs = Field(
        default=10_000,
        alias="takeover_after",
        json_schema_extra=without_default,
        description="How long after the last sign of life of an instance another one reads its"
        " partitions. A start after a crash waits as long. Left out: 10 seconds. Brokers take 6"
        " seconds to 30 minutes, unless they are set up differently.",
    )

    @property
    def columns(self) -> Columns:
        """The columns of a row; none if records are not decoded."""
        return NO_COLUMNS if self.ddl is None else parse_columns(self.ddl)


class DeliveryFrom(From):
    """The same for a delivery, which need not be JSON."""

    format: Format = Field(default="json", description="How the payload of a record is decoded.")
    avro: Avro | None = Field(default=None, description="The schema of Avro payloads.")

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """An Avro schema exactly if the format is Avro."""
        yield from wrong_avro(given)

    @property
    def columns(self) -> Columns:
        """The columns of a row; a format of a single value has one by itself."""
        if self.ddl is None and self.format in SINGLE_COLUMN_SCHEMAS:
            return parse_columns(SINGLE_COLUMN_SCHEMAS[self.format])
        return super().columns

    def payload(self, folder: Path) -> PayloadFormat | None:
        """How payloads are read; None if they are JSON.

        Raises:
            ConfigError: the Avro schema cannot be read.
        """
        if self.format == "json":
            return None
        schema = self.avro.read(folder) if self.avro else ""
        return payload_format(self.format, self.columns, schema)

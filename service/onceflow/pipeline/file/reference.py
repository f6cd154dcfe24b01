"""A reference of a pipeline: a file or a compacted topic as a table for joins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import ColumnNames, DurationMs, TopicName, fault
from onceflow.errors import ConfigError
from onceflow.pipeline.references.declaration import SUFFIXES, Reference


class ReferenceBlock(Block):
    """One table."""

    file: str | None = Field(
        default=None,
        min_length=1,
        description="CSV with a line of names, JSON Lines, or Parquet (`.csv`, `.jsonl`,"
        " `.parquet`); relative to the folder of the pipeline file.",
    )
    topic: TopicName | None = Field(
        default=None,
        description="Instead of a file: a compacted topic whose records are JSON objects. The last"
        " record of each key is a row; one without a value deletes the row.",
    )
    columns: str = Field(
        alias="schema", min_length=1, description="Columns of the table, as Spark DDL."
    )
    key: ColumnNames = Field(
        strict=False,
        description="Column, or list of columns, that name a row: no two rows have the same.",
    )
    valid_from: str | None = Field(
        default=None,
        description="Column with the instant or the day from which on a row is valid, until the"
        " next one of its key. The table then has `valid_until`, too.",
    )
    every_ms: DurationMs = Field(
        default=1000,
        alias="every",
        description="Shortest time between two looks for a change.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A file and a topic, or neither; columns that do not fit together."""
        file = given.get("file")
        if (file is None) == (given.get("topic") is None):
            yield (), fault("a reference is a file or a topic", expected="one of both")
        if isinstance(file, str) and Path(file).suffix not in SUFFIXES:
            yield ("file",), fault("unknown kind of file", expected=", ".join(SUFFIXES))
        key, valid_from = given.get("key"), given.get("valid_from")
        keys = [key] if isinstance(key, str) else key
        if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
            return
        if not isinstance(given.get("schema"), str) or not isinstance(valid_from, str | None):
            return
        try:
            found = [*Reference(given["schema"], tuple(keys), valid_from).faults()]
        except ConfigError as error:
            (told,) = error.faults
            yield ("schema",), fault(told.what, expected=told.expected)
            return
        for each in found:
            yield (each.where,), fault(each.what, expected=each.expected)

    @property
    def reference(self) -> Reference:
        """The declaration."""
        return Reference(self.columns, self.key, self.valid_from)

"""A step of a pipeline that is a processor: a Python class that handles the records of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import ColumnNames, TopicName, TransformName, fault
from onceflow.pipeline.file.policies import OnReject


class InitialState(Block):
    """Rows that the state of a step begins with."""

    file: str | None = Field(
        default=None,
        min_length=1,
        description="Parquet, CSV with a line of names, or JSON Lines (`.parquet`, `.csv`,"
        " `.jsonl`); relative to the folder of the pipeline file.",
    )
    topic: TopicName | None = Field(
        default=None,
        description="Instead of a file: a topic whose records are JSON objects. It is read as a"
        " table: the last record of each key counts, and records without a key all do.",
    )
    columns: str = Field(
        min_length=1,
        description="Columns of the rows that `on_initial` gets, as Spark DDL; those of the key"
        " among them.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A file and a topic, or neither."""
        if (given.get("file") is None) == (given.get("topic") is None):
            yield (), fault("an initial state is in a file or in a topic", expected="one of both")


class Process(Block):
    """One processor. Its rows are a view, under the name of the step."""

    kind: TransformName = Field(
        alias="class",
        description="The class, `module:Class`; the module is in the folder of the pipeline file.",
    )
    input: str = Field(
        min_length=1,
        description="The view that it reads, of a source or of a step above, or a Spark SQL query"
        " over such views.",
    )
    key: ColumnNames | None = Field(
        default=None,
        strict=False,
        description="Column, or list of columns, that records are grouped by. Left out: `key` of"
        " the class.",
    )
    order: ColumnNames | None = Field(
        default=None,
        strict=False,
        description="Columns that records of a key with the same event time are ordered by. Left"
        " out: topic, partition and offset if the input is a source; otherwise all columns.",
    )
    when: Literal["arrival", "watermark"] = Field(
        default="arrival",
        description="When a record is handled: in its batch, or once the event watermark has"
        " passed it, so that results do not depend on where batches end.",
    )
    output: str | None = Field(
        default=None,
        description="Columns of the rows that come out, as Spark DDL. Left out: `output` of the"
        " class.",
    )
    event_time: str | None = Field(
        default=None,
        description="Column of the output with the event time, for windows, joins and processors"
        " that read it.",
    )
    initial_state: InitialState | None = Field(
        default=None,
        description="What `on_initial` of the class makes the first state of. Read once, before"
        " the first batch of the pipeline.",
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a record that the processor fails on. Left out:"
        " `dead_letter` if the pipeline has a topic for them, otherwise `fail`.",
    )

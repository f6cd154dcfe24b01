"""The block of a source: what is read, how it is decoded, and when a record happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.topic_pattern import topic_pattern
from onceflow.contracts.values import (
    ColumnNames,
    DurationMs,
    IdleMs,
    Instant,
    StartingPoint,
    TopicName,
    TopicPattern,
    fault,
)
from onceflow.pipeline.dead_letter import OnReject
from onceflow.pipeline.formats import SINGLE_COLUMN_SCHEMAS, Avro, Format, wrong_avro

DEFAULT_MAX_RECORDS_PER_BATCH = 500_000
"""Where throughput stops growing (measured), far below what a 2 GB driver can hold."""


class KafkaSource(Block):
    """Which records are read."""

    topics: tuple[TopicName, ...] | None = Field(
        default=None, strict=False, min_length=1, description="Topics to read."
    )
    pattern: TopicPattern | None = Field(
        default=None,
        description="Instead of `topics`: a regular expression that matches whole topic names,"
        " without look-around and backreferences. It never means internal topics (`onceflow.*`,"
        " `__*`). Topics that appear later are read from their beginning.",
    )
    retired: tuple[TopicName, ...] = Field(
        default=(),
        strict=False,
        description="Topics that were read and are read no more, such as deleted ones. What they"
        " hold beyond the last batch is left out.",
    )
    on_trimmed: Literal["fail", "accept"] = Field(
        default="fail",
        description="What becomes of a topic or partition that appears after the first start and"
        " whose first records are already deleted: the pipeline stops and names them, or reads what"
        " is left.",
    )
    starting: StartingPoint = Field(
        default="earliest",
        description="Where the very first start begins: `earliest`, `latest`, or"
        " `{timestamp: 2026-11-01T00:00:00Z}`. Afterwards the checkpoint decides.",
    )
    max_records_per_batch: int = Field(
        default=DEFAULT_MAX_RECORDS_PER_BATCH,
        ge=1,
        description="Bound on the records of one batch, shared so that all partitions advance"
        " together in time.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Topics by name or by pattern; each topic once."""
        if ("topics" in given) == ("pattern" in given):
            yield (), fault("what to read is needed exactly once", expected="`topics` or `pattern`")
        topics = given.get("topics")
        if isinstance(topics, str):
            return
        if isinstance(topics, Sequence) and len({*map(str, topics)}) < len(topics):
            yield ("topics",), fault("a topic is named twice", suggestion="Name it once.")

    @property
    def named(self) -> Sequence[str]:
        """Topics that are read and named one by one."""
        return [topic for topic in self.topics or () if topic not in self.retired]

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name would be read."""
        if self.pattern is not None:
            return topic_pattern(self.pattern).matches(topic)
        return topic in (self.topics or ())


class Deduplicate(Block):
    """Which records of a source are duplicates."""

    key: ColumnNames = Field(
        strict=False,
        min_length=1,
        description="Column, or list of columns, that a record and its duplicates have in common,"
        " and no others. A record in which all of them are null is rejected.",
    )
    within_ms: DurationMs = Field(
        alias="within",
        description="How long a key is remembered: until the event watermark has passed the event"
        " time of its first record by so much. A record that is further behind the event watermark"
        " is late.",
    )


class Source(Block):
    """One input: a view of the query."""

    kafka: KafkaSource = Field(description="The topics, and how they are read.")
    format: Format = Field(default="json", description="How the payload of a record is decoded.")
    avro: Avro | None = Field(default=None, description="The schema of Avro payloads.")
    ddl: str | None = Field(
        default=None,
        alias="schema",
        description="Columns of the view and their types, as Spark DDL. `_key BINARY`,"
        " `_topic STRING`, `_partition INT`, `_offset BIGINT`, `_timestamp TIMESTAMP`,"
        " `_value BINARY` and `_headers ARRAY<STRUCT<key: STRING, value: BINARY>>` come from"
        " the record itself, all others from its payload. Left out, text has `value STRING` and"
        " binary `value BINARY`.",
    )
    event_time: str | None = Field(
        default=None,
        min_length=1,
        description="When a record happened: a TIMESTAMP column, or an SQL expression, which"
        " becomes the column `_event_time`.",
    )
    lateness_ms: DurationMs | None = Field(
        default=None,
        alias="lateness",
        description="How far behind the newest event time a record may be. Later ones are counted"
        " and dropped.",
    )
    idle_after_ms: IdleMs | None = Field(
        default=None,
        alias="idle_after",
        description="After so long without a record, event time goes on by itself, so that windows"
        " close although the source is silent. At least 1 second. Left out: windows stay open"
        " until a record comes.",
    )
    min_event_time: Instant | None = Field(
        default=None,
        description="Records that claim to be older are rejected.",
    )
    max_ahead_ms: DurationMs | None = Field(
        default=None,
        alias="max_ahead",
        description="How far in the future an event time may be, seen from the record's own"
        " timestamp and from the clock of the batch, whichever is earlier. Records beyond are"
        " rejected: one of them would make all that follow late.",
    )
    required: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Columns that may not be null. Records without are rejected.",
    )
    deduplicate: Deduplicate | None = Field(
        default=None,
        description="Of records with the same key, the query sees the first; duplicates are counted"
        " and dropped. Needs `event_time`.",
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a record that cannot be decoded or is rejected: written to"
        " the topic of `dead_letter`, dropped and counted, or the pipeline stops. Left out:"
        " `dead_letter` where the pipeline has such a topic, else `fail`.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Event time with lateness and bounds; a schema where the payload needs one."""
        if "event_time" in given and "lateness" not in given:
            yield (
                ("event_time",),
                fault(
                    "`event_time` without `lateness`",
                    suggestion="Say how late a record may be, such as `lateness: 10 seconds`.",
                ),
            )
        if "lateness" in given and "event_time" not in given:
            yield (
                ("lateness",),
                fault(
                    "`lateness` without `event_time`",
                    suggestion="Name the column that says when a record happened.",
                ),
            )
        for dependent in ("min_event_time", "max_ahead", "idle_after", "deduplicate"):
            if dependent in given and "event_time" not in given:
                yield (
                    (dependent,),
                    fault(
                        f"`{dependent}` without `event_time`",
                        suggestion="Name the column that says when a record happened.",
                    ),
                )
        yield from wrong_avro(given)
        if "schema" not in given and given.get("format", "json") not in SINGLE_COLUMN_SCHEMAS:
            yield (
                (),
                fault(
                    "`schema` is missing", expected='Spark DDL, such as "user STRING, at TIMESTAMP"'
                ),
            )

    @property
    def columns_ddl(self) -> str:
        """The view's columns as DDL."""
        return self.ddl or SINGLE_COLUMN_SCHEMAS[self.format]

    def options(self) -> Mapping[str, Any]:
        """The connector's block as plain values, the form of `SourceSpec.options`."""
        starting = self.kafka.starting
        if not isinstance(starting, str):
            return {
                **self.kafka.model_dump(exclude={"starting"}, exclude_none=True),
                "starting": {"timestamp": starting.astimezone(UTC).isoformat()},
            }
        return self.kafka.model_dump(exclude_none=True)

    def format_options(self, folder: Path) -> Mapping[str, str]:
        """The format's own settings, the form of `SourceSpec.format_options`.

        Raises:
            ConfigError: as `Avro.read`.
        """
        return {"schema": self.avro.read(folder)} if self.avro else {}

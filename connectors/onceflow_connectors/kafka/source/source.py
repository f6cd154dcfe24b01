"""The block `kafka:` of a source: which topics are read, and from where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from onceflow.clock import SystemClock
from onceflow.contracts.block import Combination
from onceflow.contracts.connector import Connection
from onceflow.contracts.source_block import (
    DEFAULT_MAX_RECORDS_PER_BATCH,
    Capabilities,
    KafkaTopics,
    SourceBlock,
)
from onceflow.contracts.values import StartingPoint, TopicName, TopicPattern, fault, instant_ms
from onceflow_connectors.kafka.client.java import reader_settings

if TYPE_CHECKING:
    # Need Arrow, which is not installed where a file is only checked.
    from onceflow.contracts.source import Planner, SourceSpec


class KafkaSource(SourceBlock):
    """The topics, and how they are read."""

    capabilities: ClassVar = Capabilities(
        is_replayable=True, has_stable_ranges=True, is_ordered=True, tells_silence=True
    )
    outside_results: ClassVar = SourceBlock.outside_results | {"starting", "retired", "on_trimmed"}

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
    def starting_ms(self) -> int | None:
        """`starting` in unix milliseconds; None if it is an end of the log."""
        if isinstance(self.starting, str):
            return None
        return instant_ms(self.starting)

    def planner(self, spec: SourceSpec, connection: Connection) -> Planner:
        from onceflow_connectors.kafka.source.planner import KafkaPlanner  # noqa: PLC0415  needs Arrow

        return KafkaPlanner(self, spec, connection, SystemClock())

    def java_client(self, connection: Connection) -> Mapping[str, str]:
        return reader_settings(connection)

    def describe(self) -> str:
        what = f"like {self.pattern}" if self.topics is None else ", ".join(self.topics)
        return f"topics {what}"

    def kafka_topics(self) -> KafkaTopics:
        return KafkaTopics(self.topics or (), self.pattern, frozenset(self.retired))

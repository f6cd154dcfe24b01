"""The pipeline file as frozen models. No Spark, no Kafka: only what may be written where.

Field descriptions become `docs/pipeline.schema.json` and the tables of `docs/pipeline.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, PrivateAttr, ValidationError

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.source_block import find_source
from onceflow.contracts.values import (
    DurationMs,
    Location,
    PipelineName,
    TransformName,
    ViewName,
    fault,
    without_default,
)
from onceflow.errors import ConfigError
from onceflow.pipeline.file.aggregate import AggregateText, parse_call
from onceflow.pipeline.file.code_files import code_of
from onceflow.pipeline.file.parameters import ParametersBlock
from onceflow.pipeline.file.policies import (
    DeadLetterBlock,
    Late,
    OnDivergence,
    OnReject,
    Restart,
    Waiver,
)
from onceflow.pipeline.file.process import Process
from onceflow.pipeline.file.reference import ReferenceBlock
from onceflow.pipeline.file.sink import Sink
from onceflow.pipeline.file.source import AnySource, kinds_in
from onceflow.processing.parameters import NONE, Parameters
from onceflow.protocol.delivery import Delivery


class Pipeline(Block):
    """A job: sources, one transformation, one sink."""

    model_config = ConfigDict(
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "oneOf": [{"required": ["query"]}, {"required": ["transform"]}],
        }
    )

    api_version: Literal["onceflow/v1"] = Field(
        alias="apiVersion", description="Version of this file's language."
    )
    name: PipelineName = Field(
        description="Name of the pipeline. It names the ledger and the transactional ids, so a"
        " renamed pipeline is another pipeline."
    )
    delivery: Literal["exactly_once", "at_least_once", "at_most_once"] = Field(
        default="exactly_once",
        description="What is promised about each input record, for source, state and sink together;"
        " see [guarantees.md](guarantees.md#delivery-modes).",
    )
    sources: dict[ViewName, AnySource] = Field(
        min_length=1, description="The inputs, each under the name of its view in the query."
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        description="The transformation: one Spark SQL query over the views.",
    )
    process: dict[ViewName, Process] = Field(
        default_factory=dict,
        description="Processors, each under the name of the view that its rows are, in order: each"
        " reads sources and steps above it; see [state.md](state.md).",
    )
    parameters: ParametersBlock | None = Field(
        default=None,
        description="Values that queries and processors read by name, and that change between"
        " batches; see [state.md](state.md#parameters).",
    )
    references: dict[ViewName, ReferenceBlock] = Field(
        default_factory=dict,
        description="Files and compacted topics as tables for joins, each under the name of its"
        " table in the query; see [references.md](references.md).",
    )
    aggregates: dict[ViewName, AggregateText] = Field(
        default_factory=dict,
        description="Aggregates that queries call by these names: `module:Class`, with literals in"
        " parentheses; see [state.md](state.md#aggregates-in-sql).",
    )
    transform: TransformName | None = Field(
        default=None,
        description="Instead of `query`: a Python function `module:function` that takes each"
        " source's DataFrame as the parameter of the view's name and returns one DataFrame.",
    )
    sink: Sink = Field(description="Where results go, and how.")
    trigger_ms: DurationMs = Field(
        default=280,
        alias="trigger",
        json_schema_extra=without_default,
        description="Shortest time from the start of one batch to the next. Left out: 280 ms, which"
        " spares half the processor time of as soon as possible (0 ms).",
    )
    checkpoint: Location | None = Field(
        default=None,
        description="Where Spark keeps positions and state: a directory, relative to the pipeline"
        " file, or a URL (s3a, hdfs, abfs, abfss, gs). Left out: `.onceflow/<name>`.",
    )
    waivers: tuple[Waiver, ...] = Field(
        default=(),
        strict=False,
        description="Rules of determinism that you take the responsibility for: exactly once"
        " then holds unless a batch is replayed.",
    )
    dead_letter: DeadLetterBlock | None = Field(
        default=None,
        description="Where rejected records go, in the transaction of their batch.",
    )
    on_divergence: OnDivergence = Field(
        default="halt",
        description="What becomes of a replay that computes other rows than were committed: the"
        " pipeline halts, or the committed rows stay and those that differ are written to the topic"
        " of `dead_letter`.",
    )
    late: Late | None = Field(
        default=None,
        description="Where late records go, in the transaction of their batch. Left out: they are"
        " counted and dropped.",
    )
    restart: Restart = Field(
        default=Restart(),
        description="When `onceflow serve` starts the pipeline again after a failure. A pipeline of"
        " `onceflow run` ends with its first error instead.",
    )

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """One transformation."""
        if "query" in given and "transform" in given:
            yield (
                ("transform",),
                fault(
                    "`query` and `transform` both say what to compute",
                    suggestion="Keep one of them.",
                ),
            )
        if "query" not in given and "transform" not in given:
            yield (), fault("nothing says what to compute", expected="`query` or `transform`")
        yield from _names_twice(given)
        yield from _loops(given)
        yield from _missing_topic(given)

    def located_in(self, folder: Path) -> Self:
        """The same pipeline, whose relative names are relative to `folder`."""
        located = self.model_copy()
        located._folder = folder  # noqa: SLF001  it is a copy of ourselves
        return located

    def renamed(self, name: str, topic: str) -> Self:
        """The same pipeline under another name, which writes to another topic."""
        kafka = self.sink.kafka.model_copy(update={"topic": topic})
        sink = self.sink.model_copy(update={"kafka": kafka})
        return self.model_copy(update={"name": name, "sink": sink})

    @property
    def folder(self) -> Path:
        """The folder of the pipeline file, which relative names are relative to."""
        return self._folder

    def on_reject(self, source: str) -> OnReject:
        """The policy for rejected records of this source."""
        return self.sources[source].on_reject or self._default_on_reject

    @property
    def on_reject_by_sink(self) -> OnReject:
        """The policy for rows that the output topic does not take."""
        return self.sink.on_reject or self._default_on_reject

    def on_reject_by_step(self, step: str) -> OnReject:
        """The policy for records that a processor fails on."""
        return self.process[step].on_reject or self._default_on_reject

    @property
    def _default_on_reject(self) -> OnReject:
        return "dead_letter" if self.dead_letter else "fail"

    @property
    def mode(self) -> Delivery:
        """The mode that `delivery` asks for."""
        return Delivery(self.delivery)

    @property
    def checkpoint_location(self) -> str:
        """An absolute directory, or a URL."""
        written = self.checkpoint or f".onceflow/{self.name}"
        return written if "://" in written else str((self._folder / written).resolve())

    @property
    def has_processors(self) -> bool:
        """Whether Python keeps state: a step of its own, or an aggregate that SQL calls."""
        return bool(self.process or self.aggregates)

    @property
    def event_time_sources(self) -> frozenset[str]:
        """Sources with an event time."""
        return frozenset(view for view, source in self.sources.items() if source.event_time)

    @property
    def named_inputs(self) -> list[str]:
        """Topics that its sources name and read."""
        found = (source.block.kafka_topics() for source in self.sources.values())
        return [topic for topics in found if topics is not None for topic in topics.named]

    @property
    def declared_parameters(self) -> Parameters:
        """Values that queries and processors read by name."""
        return self.parameters.declared if self.parameters else NONE

    @property
    def letter_topics(self) -> list[str]:
        """Topics that are written in the same transactions as the output."""
        return [block.topic for block in (self.dead_letter, self.late) if block]

    @property
    def control_topics(self) -> list[str]:
        """The topic of its parameters, if it has any."""
        return [self.parameters.topic] if self.parameters else []

    @property
    def reference_topics(self) -> list[str]:
        """Topics that are read as tables."""
        return [block.topic for block in self.references.values() if block.topic]

    def result_parts(self) -> Mapping[str, JsonValue]:
        """Whatever in the file and its Python code changes which rows are computed, by name.

        Left out is what changes only when and where: trigger, checkpoint, restarts, `idle_after`,
        what a source's block says of itself (`SourceBlock.outside_results`), where parameters and
        references come from, and where rejected, late and divergent records go; the output's
        partitions and the order of records, which the ledger pins; and waivers, which change
        nothing.
        """
        settings: dict[str, Any] = self.model_dump(
            mode="json",
            by_alias=True,
            # So that options which a later version adds leave the parts as they are.
            exclude_none=True,
            exclude={
                "trigger_ms": True,
                "checkpoint": True,
                "waivers": True,
                "dead_letter": True,
                "late": True,
                "on_divergence": True,
                "restart": True,
                "parameters": {"topic": True},
                "sources": {
                    name: {
                        "block": set(source.block.outside_results),
                        "idle_after_ms": True,
                        "on_reject": True,
                    }
                    for name, source in self.sources.items()
                },
                "process": {name: {"on_reject": True} for name in self.process},
                "references": {
                    name: {"file": True, "topic": True, "every_ms": True}
                    for name in self.references
                },
                "sink": {"on_reject": True, "order_by": True, "kafka": {"partitions"}},
            },
        )
        sources = settings.pop("sources")
        parts = {f"sources.{name}": source for name, source in sources.items()}
        tables = settings.pop("references")
        parts |= {f"references.{name}": table for name, table in tables.items()}
        steps = settings.pop("process")
        parts |= {f"process.{name}": step for name, step in steps.items()}
        named = [step.kind for step in self.process.values()]
        named += [parse_call(text).kind for text in self.aggregates.values()]
        named += [self.transform] if self.transform is not None else []
        if named:
            parts["code"] = {f: tree for n in named for f, tree in code_of(n, self._folder).items()}
        if not self.aggregates:
            del settings["aggregates"]
        return {**settings, **parts}


def _names_twice(given: Mapping[str, Any]) -> Iterator[Combination]:
    """Steps that are called like a source, and references that are called like either."""
    seen: dict[str, str] = {}
    for key, what in (("sources", "source"), ("process", "step"), ("references", "reference")):
        block = given.get(key)
        for name in block if isinstance(block, Mapping) else ():
            if name in seen:
                told = f"a {seen[name]} has this name"
                yield (
                    (key, str(name)),
                    fault(told, suggestion=f"Give the {what} another name."),
                )
            seen.setdefault(name, what)


def _loops(given: Mapping[str, Any]) -> Iterator[Combination]:
    """Sources that would read what the pipeline writes; parts that are faulty themselves don't."""
    written: list[str] = []
    for path in (("sink", "kafka"), ("dead_letter",), ("late",), ("parameters",)):
        topic = _topic_at(given, *path)
        if topic in written:
            yield (
                (*path, "topic"),
                fault(
                    "the pipeline writes something else to this topic",
                    suggestion="Name a topic of its own.",
                ),
            )
        if topic is not None:
            written.append(topic)
    sources, tables = given.get("sources"), given.get("references")
    for name in tables if isinstance(tables, Mapping) else ():
        if _topic_at(given, "references", name) in written:
            yield (
                ("references", str(name), "topic"),
                fault(
                    "a pipeline cannot read the topic that it writes",
                    suggestion="Write to another topic.",
                ),
            )
    for name, source in sources.items() if isinstance(sources, Mapping) else ():
        for kind in kinds_in(source):
            try:
                topics = find_source(kind).model_validate(source[kind]).kafka_topics()
            except (ValidationError, ConfigError):
                continue
            if topics is None or not any(map(topics.covers, written)):
                continue
            yield (
                ("sources", name, kind),
                fault(
                    "a pipeline cannot read the topic that it writes",
                    suggestion="Write to another topic.",
                ),
            )


def _missing_topic(given: Mapping[str, Any]) -> Iterator[Combination]:
    """Dead letters where no topic is named."""
    if given.get("dead_letter") is not None:
        return
    if given.get("on_divergence") == "quarantine":
        yield ("on_divergence",), _NO_TOPIC
    sources = given.get("sources")
    blocks: dict[tuple[str, ...], object] = {("sink",): given.get("sink")}
    if isinstance(sources, Mapping):
        blocks |= {("sources", str(name)): source for name, source in sources.items()}
    if isinstance(steps := given.get("process"), Mapping):
        blocks |= {("process", str(name)): step for name, step in steps.items()}
    for path, block in blocks.items():
        if isinstance(block, Mapping) and block.get("on_reject") == "dead_letter":
            yield (*path, "on_reject"), _NO_TOPIC


_NO_TOPIC = fault(
    "no topic is named for dead letters",
    suggestion="Add `dead_letter: {topic: ...}` to the pipeline.",
)


def _topic_at(given: Mapping[str, Any], *path: str) -> str | None:
    """The topic in a block that may be anything yet."""
    block: Any = given
    for name in path:
        block = block.get(name) if isinstance(block, Mapping) else None
    topic = block.get("topic") if isinstance(block, Mapping) else None
    return topic if isinstance(topic, str) else None

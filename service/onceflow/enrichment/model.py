"""The enrichment file as frozen models: only what may be written where.

Field descriptions become `docs/enrichment.schema.json` and the table of `docs/enrichment.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from onceflow.clock import Clock
from onceflow.columns import Columns, parse_columns
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.connector import CarriageTopics
from onceflow.contracts.service import Service
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetSpec
from onceflow.contracts.values import (
    ColumnNames,
    ColumnsDdl,
    DurationMs,
    PipelineName,
    StartingPoint,
    TopicName,
    TransformName,
    ViewName,
    fault,
    not_yet,
    without_default,
)
from onceflow.delivery.decoding import Decoder, Decodes
from onceflow.delivery.from_block import From
from onceflow.delivery.model import (
    DROPS,
    GAPS,
    BatchLimits,
    Carriage,
    Lent,
    Retry,
)
from onceflow.delivery.pace import Pace
from onceflow.pipeline.file.policies import OnReject
from onceflow.protocol.guarantee import Guarantee, Level, Weakness
from onceflow_connectors.http.ask_block import MAX_ANSWER_BYTES, AskBlock

Order: TypeAlias = Literal["key", "partition", "none"]
OnError: TypeAlias = Literal["reject", "write_null", "retry"]

ASKED_AGAIN = Weakness(
    "the service is asked about a record at least once: after a crash or a lost answer it is asked"
    " again, and the answer that is recorded is one of them",
    "Ask a service that only looks something up, or one to which a repeated question does no harm.",
)


def _kept_for(enrichment: str) -> str:
    """The name under which positions are kept. No delivery has it, because of the colon."""
    return f"enrichment:{enrichment}"


class Read(From):
    """The topic, and the columns of its records."""

    topics: tuple[TopicName, ...] = Field(
        min_length=1, strict=False, description="The topic to read: a list of one."
    )
    ddl: ColumnsDdl = Field(
        alias="schema",
        description="Columns of a record and their types, as Spark DDL, such as"
        ' "page STRING, views BIGINT NOT NULL". Each is a field of the payload. Records that do not'
        " fit are rejected; fields that are not named are carried on.",
    )
    format: Annotated[Literal["json"], not_yet("csv", "text", "binary", "avro", "protobuf")] = (
        Field(default="json", description="How the payload of a record is decoded.")
    )
    starting: StartingPoint = Field(
        default="earliest",
        description="Where an enrichment begins that has never run: `earliest`, `latest`, or"
        " `{timestamp: 2026-11-01T00:00:00Z}`. Afterwards its position decides.",
    )
    foreign: Literal["fail", "deliver", "drop"] = Field(
        default="deliver",
        description="What becomes of a record that no pipeline of Onceflow wrote.",
    )


class PythonBlock(Block):
    """A Python coroutine that is asked. It gets the row, and returns the answer."""

    coroutine: TransformName = Field(
        description="`module:name` of a function with `async def`, in a file next to this one."
        " It gets the columns by name, and returns a dict of values that JSON has."
    )
    timeout_ms: DurationMs = Field(
        default=30_000,
        alias="timeout",
        json_schema_extra=without_default,
        description="For one question. Left out: 30 seconds.",
    )

    def service(
        self, columns: Columns, folder: Path, _concurrency: int, _clock: Clock
    ) -> Service[Any]:
        """Make the service. Imports nothing before the first question."""
        from onceflow.enrichment.python_service import PythonService  # noqa: PLC0415

        timeout_s = self.timeout_ms / 1000
        return PythonService(self.coroutine, folder, columns, timeout_s, MAX_ANSWER_BYTES)

    def describe(self) -> str:
        """Say in a few words who is asked."""
        return f"Python, {self.coroutine}"


class CacheBlock(Block):
    """How long an answer is used for equal questions. In memory: a start begins without any."""

    lifetime_ms: DurationMs = Field(
        alias="for", description="Age of an answer, such as `10 minutes`."
    )
    at_most: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Answers that are kept, in 64 MiB at most."
    )
    by: ColumnNames | None = Field(
        default=None,
        strict=False,
        description="Columns by whose values questions are equal. Left out: the whole question, as"
        " `url`, the body of `POST`, or the row of a coroutine makes it.",
    )


class Ask(Block):
    """Who is asked, and how."""

    http: AskBlock | None = Field(
        default=None, description="A service that is asked by HTTP and answers with a JSON object."
    )
    python: PythonBlock | None = Field(
        default=None,
        description="A Python coroutine. `onceflow serve` needs the setting `transforms: true`.",
    )
    concurrency: int = Field(
        default=8, ge=1, le=1_000, description="Questions that wait for an answer at the same time."
    )
    order: Order = Field(
        default="key",
        description="Which questions wait for the answer to the one before: those about records of"
        " one key of a partition (records without a key count as one key), those of one partition,"
        " or none. The order of the output is that of the input in any case.",
    )
    questions_per_second: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Most questions in the long run. Left out: no limit. `rate` limits records.",
    )
    cache: CacheBlock | None = Field(
        default=None, description="Use answers again. Left out: every record is asked about."
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """One service."""
        if sum(kind in given for kind in ("http", "python")) != 1:
            yield (), fault("one service is needed, and no more", expected="`http` or `python`")

    @property
    def block(self) -> AskBlock | PythonBlock:
        """The block of the service."""
        return next(each for each in (self.http, self.python) if each is not None)


class AnswerBlock(Block):
    """The answer as it is recorded."""

    column: ViewName = Field(
        alias="as", description="Name of the field that the record gets. It may not have it yet."
    )
    ddl: ColumnsDdl = Field(
        alias="schema",
        description="Fields of an answer and their types, as Spark DDL. Other fields are left out;"
        " an answer that does not fit is of no use, and `on_error` decides.",
    )

    @property
    def columns(self) -> Columns:
        """The fields of an answer."""
        return parse_columns(self.ddl)


class EnrichedBlock(Block):
    """The topic of records with answers, in the cluster of the topics that are read."""

    topic: TopicName = Field(
        description="The topic. It needs at least as many partitions as the one that is read."
    )
    create: bool = Field(
        default=False,
        description="Whether it is created if it does not exist, with as many partitions as the"
        " topic that is read.",
    )


class AskRetry(Retry):
    """How a service is asked again that does not answer, or not now."""

    attempts: int | None = Field(
        default=None,
        ge=1,
        description="Tries in a row without any answer after which the service is given up: then"
        " `on_error` decides about the questions of the batch, and with `on_error: retry` the"
        " enrichment ends with exit code 3. Left out: it is never given up.",
    )


class AskedBatch(BatchLimits):
    """How many records are asked about before they are written."""

    max_records: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Records of one batch. What a crash interrupts is asked about again.",
    )


class Enrichment(Carriage):
    """Asks a service for each record of topics, and writes records and answers to a topic."""

    group_prefix = "onceflow-enrichment-"

    kind: Literal["enrichment"] = Field(description="Kind of this file.")
    name: PipelineName = Field(
        description="Name of the enrichment. Its position is kept under this name, so a renamed"
        " enrichment begins at the start of its topics."
    )
    source: Read = Field(alias="from", description="What is read.")
    to: EnrichedBlock = Field(description="Where records and answers go.")
    batch: AskedBatch = Field(
        default=AskedBatch(), description="How much is asked about, and written, at once."
    )
    retry: AskRetry = Field(
        default=AskRetry(), description="How a service is asked again that does not answer."
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a record that cannot be decoded or written, or that `on_error`"
        " rejects: written to the topic of `dead_letter`, dropped and counted, or the enrichment"
        " stops. Left out: `dead_letter` if there is such a topic, else `fail`.",
    )
    ask: Ask = Field(description="Who is asked, and how.")
    answer: AnswerBlock = Field(description="The answer as it is recorded.")
    on_error: OnError = Field(
        default="reject",
        description="What becomes of a record to whose question there will never be an answer, or"
        " none that is of use: `reject` it, as `on_reject` says; `write_null` instead of an answer;"
        " or `retry` until there is one, which holds up everything after it.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Besides those of every carriage: a topic that is read and written."""
        yield from super().wrong_combinations(given)
        source, to, letters = (given.get(name) for name in ("from", "to", "dead_letter"))
        topics = source.get("topics") if isinstance(source, Mapping) else None
        topic = to.get("topic") if isinstance(to, Mapping) else None
        if isinstance(topics, list) and len(topics) > 1:
            what = "sequences of several topics would mix in one"
            yield ("from", "topics"), fault(what, suggestion="Write an enrichment for each topic.")
        if isinstance(topics, list) and topic in topics:
            what = "an enrichment cannot read the topic that it writes"
            yield ("to", "topic"), fault(what, suggestion="Name another topic.")
        if topic is not None and isinstance(letters, Mapping) and letters.get("topic") == topic:
            what = "dead letters and records with answers in one topic"
            yield ("dead_letter", "topic"), fault(what, suggestion="Name another topic.")

    @property
    def limits(self) -> BatchLimits:
        """No more than a second of questions, so that a batch does not take long."""
        most = self.ask.questions_per_second
        if most is None or most >= self.batch.max_records:
            return self.batch
        return self.batch.model_copy(update={"max_records": most})

    @property
    def patience(self) -> Retry:
        """Without an end, unless questions are asked until they are answered."""
        if self.on_error == "retry":
            return self.retry
        return self.retry.model_copy(update={"attempts": None})

    def describe(self) -> str:
        """Say in a few words where records go."""
        return f"topic {self.to.topic}, with answers of {self.ask.block.describe()}"

    def guarantee(self) -> Guarantee:
        """Compute what is promised about each record, and under which conditions."""
        conditions: tuple[Weakness, ...] = (ASKED_AGAIN,)
        conditions += (GAPS,) * (self.source.on_gap == "continue")
        conditions += (DROPS,) * (self.when_behind.policy == "drop_oldest")
        scope = "from topic to topic, with one answer, for read_committed readers"
        return Guarantee(Level.EXACTLY_ONCE, scope, conditions)

    def kafka_topics(self) -> CarriageTopics:
        """The topics that it reads and writes."""
        return CarriageTopics(
            name=_kept_for(self.name),
            group=self.group,
            inputs=self.source.topics,
            letters=self.letter_topics,
            outputs=[self.to.topic],
            is_created=self.to.create,
        )

    def decoder(self) -> Decodes:
        """Make the decoder of its records."""
        columns = self.source.columns
        return Decoder(columns, columns.required, ())

    def target(self, lent: Lent) -> Target:
        """Make the target. Connects to nothing before its first use.

        Raises:
            ConfigError: the client of HTTP is missing.
        """
        from onceflow.enrichment.answers import AnswerReader  # noqa: PLC0415  these know our models
        from onceflow.enrichment.asking import Asking  # noqa: PLC0415
        from onceflow.enrichment.cache import AnswerCache  # noqa: PLC0415
        from onceflow.enrichment.target import EnrichingTarget, Terms  # noqa: PLC0415

        ask, columns, clock = self.ask, self.source.columns, lent.clock
        spec = TargetSpec(
            _kept_for(self.name),
            columns,
            self.folder,
            self.source.topics,
            lent.connection,
            clock,
        )
        service = ask.block.service(columns, self.folder, ask.concurrency, clock)
        cache, most = ask.cache, ask.questions_per_second
        by = cache.by if cache else None
        return EnrichingTarget(
            inner=lent.connector.topic_target(spec, self.to.topic, self.to.create),
            asking=Asking(
                service,
                AnswerReader(self.answer.columns).read,
                ask.concurrency,
                Pace(most) if most else None,
                clock,
            ),
            cache=AnswerCache(cache.lifetime_ms / 1000, cache.at_most) if cache else None,
            terms=Terms(
                self.name,
                self.answer.column,
                ask.order,
                self.on_error,
                tuple(columns.names.index(name) for name in by) if by else None,
                None if self.on_error == "retry" else self.retry.attempts,
            ),
            clock=clock,
            report=lent.report,
        )

"""The delivery file as frozen models. No Spark, no Kafka: only what may be written where.

Field descriptions become `docs/delivery.schema.json` and the table of `docs/deliveries.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, create_model

from onceflow.clock import Clock
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.connector import CarriageTopics, Connection, Connector
from onceflow.contracts.observer import Report
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import (
    SenderBlock,
    TargetBlock,
    TargetSpec,
    find_target,
    installed_targets,
)
from onceflow.contracts.values import (
    DurationMs,
    PipelineName,
    SizeBytes,
    fault,
    without_default,
)
from onceflow.delivery.decoding import Decoder, Decodes
from onceflow.delivery.from_block import DeliveryFrom, From
from onceflow.errors import ConfigError
from onceflow.pipeline.file.policies import (
    DeadLetterBlock,
    OnReject,
    wrong_delays,
)
from onceflow.protocol.guarantee import Guarantee, Weakness

FOREIGN = Weakness(
    "records without the header of Onceflow are delivered as often as the topic has them",
    "Leave out `foreign: deliver` if only pipelines write to the topic.",
)
GAPS = Weakness(
    "records that retention or compaction has removed are passed over, with a warning",
    "Leave out `on_gap: continue` to stop instead.",
)
DROPS = Weakness(
    "records that wait for too long are dropped, and a gap record names them",
    "Leave out `when_behind: {policy: drop_oldest}` to let them wait.",
)


class BatchLimits(Block):
    """How much is written, and kept in memory, at once."""

    max_records: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Records of one batch."
    )
    max_bytes: SizeBytes = Field(
        default=8 * 1024 * 1024, description="Payload of one batch, such as `8 MiB`."
    )
    max_delay_ms: DurationMs = Field(
        default=200,
        alias="max_delay",
        json_schema_extra=without_default,
        description="How long a record waits for others. Left out: 200 ms.",
    )


WhenKeyExpires: TypeAlias = Literal["stop", "send"]


class Retry(Block):
    """How a target is tried again that does not answer, or not now. Order is kept."""

    delay_ms: DurationMs = Field(
        default=1_000,
        alias="delay",
        json_schema_extra=without_default,
        description="Before the first probe. Left out: 1 second.",
    )
    multiplier: float = Field(
        default=2.0, ge=1, le=100, description="How much longer each further delay is."
    )
    max_delay_ms: DurationMs = Field(
        default=60_000,
        alias="max_delay",
        json_schema_extra=without_default,
        description="That no delay exceeds, but for its jitter. Left out: 1 minute.",
    )
    jitter: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Part of a delay by which it is longer or shorter at random.",
    )
    attempts: int | None = Field(
        default=None,
        ge=1,
        description="Failures in a row after which the delivery ends with exit code 3. Left out:"
        " it never gives up.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A bound below what it bounds."""
        yield from wrong_delays(given)


class DeliveryRetry(Retry):
    """The same for a delivery, whose receiver may forget what it has had."""

    when_key_expires: WhenKeyExpires = Field(
        default="stop",
        description="What happens to records without an answer that the receiver may have and no"
        " longer recognises, because the first try is too long ago: the delivery stops with exit"
        " code 6, or sends them, perhaps a second time. Only for receivers that keep no position.",
    )


class OnStop(Block):
    """Policy for records that wait when the delivery is told to stop. None of them is lost."""

    drain_ms: DurationMs | None = Field(
        default=None,
        alias="drain",
        description="How long it goes on at most to deliver what is in the topics at that time,"
        " such as `30 seconds`; also while the target does not answer. Left out: it stops after the"
        " running batch.",
    )


class WhenBehind(Block):
    """Policy for records that wait because the target is slower than the topics."""

    policy: Literal["block", "drop_oldest"] = Field(
        default="block",
        description="`block`: the lag grows and nothing is dropped; `drop_oldest`: records that"
        " have waited for longer than `max_age` are not delivered. A gap record in the topic of"
        " `dead_letter` names each range that was dropped.",
    )
    max_age_ms: DurationMs | None = Field(
        default=None,
        alias="max_age",
        description="With `drop_oldest`: how old a record may be when it is read, by its"
        " timestamp.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """An age exactly for dropping."""
        is_dropping = given.get("policy") == "drop_oldest"
        if is_dropping and given.get("max_age") is None:
            suggestion = "Add `max_age`, such as `2 hours`."
            yield (), fault("`drop_oldest` without `max_age`", suggestion=suggestion)
        if not is_dropping and given.get("max_age") is not None:
            suggestion = "Remove it, or set `policy: drop_oldest`."
            yield ("max_age",), fault("`max_age` means nothing to `block`", suggestion=suggestion)


class Rate(Block):
    """How fast records are delivered at most."""

    records_per_second: int = Field(
        ge=1, le=10_000_000, description="In the long run; batches are made no larger than this."
    )
    shared: PipelineName | None = Field(
        default=None,
        description="Name of a limit that deliveries of one process share: all that name it deliver"
        " no more than this together.",
    )


class To(Block):
    """The target. The key of the block in it is the kind; each that is installed is a field."""

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """One kind."""
        if sum(kind in given for kind in installed_targets()) != 1:
            known = " or ".join(f"`{kind}`" for kind in installed_targets())
            yield (), fault("one target is needed, and no more", expected=known)

    @property
    def kind(self) -> str:
        """The kind that the file names."""
        return next(iter(self.model_fields_set))

    @property
    def block(self) -> TargetBlock:
        """The block of that kind."""
        block: TargetBlock = getattr(self, self.kind)
        return block


@dataclass(frozen=True)
class Lent:
    """Parts of the process that a target is made with.

    Args:
        connection: to the brokers of the topics that are read.
    """

    connector: Connector
    connection: Connection
    clock: Clock
    report: Report


class Carriage(Block):
    """A file whose process reads topics and carries the records on, under a position of its own.

    Fields that are typed loosely here are described by the kinds: deliveries and enrichments.
    """

    model_config = ConfigDict(
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"}
    )
    group_prefix: ClassVar[str]

    api_version: Literal["onceflow/v1"] = Field(
        alias="apiVersion", description="Version of this file's language."
    )
    kind: str = Field(description="Kind of this file.")
    name: PipelineName
    source: From = Field(alias="from", description="What is read.")
    to: Block
    batch: BatchLimits = Field(default=BatchLimits(), description="How much is written at once.")
    retry: Retry = Field(
        default=Retry(), description="How a target is tried again that does not answer."
    )
    rate: Rate | None = Field(default=None, description="How fast records are delivered at most.")
    on_reject: OnReject | None = None
    dead_letter: DeadLetterBlock | None = Field(
        default=None, description="Where rejected records go, before their batch is written."
    )
    when_behind: WhenBehind = Field(
        default=WhenBehind(), description="What happens if the target is slower than the topics."
    )
    on_stop: OnStop = Field(
        default=OnStop(), description="What happens to records that wait at SIGTERM or Ctrl-C."
    )

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Dead letters or gap records without a topic, or to a topic that is read."""
        letters = given.get("dead_letter")
        suggestion = f"Add `dead_letter: {{topic: ...}}` to the {given.get('kind', 'file')}."
        if given.get("on_reject") == "dead_letter" and letters is None:
            what = "no topic is named for dead letters"
            yield ("on_reject",), fault(what, suggestion=suggestion)
        behind = given.get("when_behind")
        is_dropping = isinstance(behind, Mapping) and behind.get("policy") == "drop_oldest"
        if is_dropping and letters is None:
            what = "no topic is named for gap records"
            yield ("when_behind",), fault(what, suggestion=suggestion)
        source = given.get("from")
        topics = source.get("topics") if isinstance(source, Mapping) else None
        topic = letters.get("topic") if isinstance(letters, Mapping) else None
        if isinstance(topics, list) and topic in topics:
            what = f"{_with_article(given.get('kind'))} cannot read the topic that it writes"
            suggestion = "Name another topic for dead letters."
            yield ("dead_letter", "topic"), fault(what, suggestion=suggestion)

    def located_in(self, folder: Path) -> Self:
        """The same, whose relative names are relative to `folder`."""
        located = self.model_copy()
        located._folder = folder  # noqa: SLF001  it is a copy of ourselves
        return located

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._folder

    @property
    def group(self) -> str:
        """The consumer group that its instances join."""
        return f"{self.group_prefix}{self.name}"

    @property
    def rejection(self) -> OnReject:
        """The policy for rejected records."""
        return self.on_reject or ("dead_letter" if self.dead_letter else "fail")

    @property
    def letter_topics(self) -> Sequence[str]:
        """The topic of dead letters, if there is one."""
        return [self.dead_letter.topic] if self.dead_letter else []

    @property
    def limits(self) -> BatchLimits:
        """How much is read before it is written."""
        return self.batch

    @property
    def patience(self) -> Retry:
        """How a target as a whole is tried again."""
        return self.retry

    def describe(self) -> str:
        """Say in a few words where records go."""
        raise NotImplementedError

    def guarantee(self) -> Guarantee:
        """Compute what is promised about each record, and under which conditions."""
        raise NotImplementedError

    def kafka_topics(self) -> CarriageTopics:
        """The topics that it reads and writes, for the rights that it needs."""
        raise NotImplementedError

    def decoder(self) -> Decodes:
        """Make the decoder of its records."""
        raise NotImplementedError

    def target(self, lent: Lent) -> Target:
        """Make the target. Connects to nothing before its first use.

        Raises:
            ConfigError: what it needs is not installed.
        """
        raise NotImplementedError


def _with_article(kind: object) -> str:
    return f"an {kind}" if kind == "enrichment" else f"a {kind or 'file'}"


class Delivery(Carriage):
    """Carries the records of topics to one target. `delivery_model` knows the installed targets."""

    group_prefix = "onceflow-delivery-"

    kind: Literal["delivery"] = Field(description="Kind of this file.")
    name: PipelineName = Field(
        description="Name of the delivery. Its position in the target is kept under this name, so a"
        " renamed delivery begins at the start of its topics."
    )
    source: DeliveryFrom = Field(alias="from", description="What is read.")
    to: To = Field(description="Where records go: the block of one kind of target.")
    retry: DeliveryRetry = Field(
        default=DeliveryRetry(), description="How a target is tried again that does not answer."
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a record that cannot be decoded or that the target will never"
        " take: written to the topic of `dead_letter`, dropped and counted, or the delivery stops."
        " Left out: `dead_letter` if there is such a topic, else `fail`.",
    )

    def describe(self) -> str:
        """Say in a few words where records go."""
        return self.to.block.describe()

    def guarantee(self) -> Guarantee:
        """Compute what is promised about each record, and under which conditions."""
        found = self.to.block.guarantee()
        conditions = (FOREIGN,) * (self.source.foreign == "deliver")
        conditions += (GAPS,) * (self.source.on_gap == "continue")
        conditions += (DROPS,) * (self.when_behind.policy == "drop_oldest")
        return Guarantee(found.level, found.scope, (*found.reasons, *conditions))

    def kafka_topics(self) -> CarriageTopics:
        """The topics that it reads and writes."""
        block = self.to.block
        elsewhere = block.topics_elsewhere(self.source.topics)
        return CarriageTopics(
            name=self.name,
            group=self.group,
            inputs=self.source.topics,
            letters=self.letter_topics,
            outputs=elsewhere,
            is_created=block.creates_topics,
            has_positions=bool(elsewhere) or isinstance(block, SenderBlock),
            is_elsewhere=bool(elsewhere),
            is_resent=not block.refuses_letters,
        )

    def decoder(self) -> Decodes:
        """Make the decoder of its records."""
        block, columns = self.to.block, self.source.columns
        required = columns.required | block.required_columns
        payload = self.source.payload(self.folder)
        decoder = Decoder(
            columns,
            required,
            block.deletes_by,
            makes_rows=block.takes != "records",
            payload=payload,
        )
        if block.takes != "table":
            return decoder
        from onceflow.delivery.json_tables import JsonTables  # noqa: PLC0415  these need Arrow
        from onceflow.delivery.tables import TableDecoder  # noqa: PLC0415

        json = JsonTables(columns, required) if payload is None else None
        return TableDecoder(decoder, columns, json)

    def target(self, lent: Lent) -> Target:
        """Make the target. Connects to nothing before its first use.

        Raises:
            ConfigError: what it needs is not installed.
        """
        from onceflow.delivery.sending import SendingTarget  # noqa: PLC0415  it knows our models

        block, source = self.to.block, self.source
        spec = TargetSpec(
            self.name, source.columns, self.folder, source.topics, lent.connection, lent.clock
        )
        if not isinstance(block, SenderBlock):
            return block.target(spec)
        return SendingTarget(
            block.sender(spec),
            lent.connector.positions(self.name, lent.connection),
            lent.clock,
            block.key_lifetime_ms,
            self.retry.when_key_expires,
        )


@cache
def delivery_model() -> type[Delivery]:
    """The model with a block for each kind of target that is installed."""
    fields: dict[str, Any] = {kind: _field(kind) for kind in installed_targets()}
    to = create_model("To", __base__=To, __doc__=To.__doc__, **fields)
    where = Field(description=Delivery.model_fields["to"].description)
    return create_model("Delivery", __base__=Delivery, __doc__=Delivery.__doc__, to=(to, where))


def _field(kind: str) -> tuple[Any, Any]:
    try:
        block = find_target(kind)
    except ConfigError as error:
        return Annotated[Any, BeforeValidator(_refusing(str(error)))], Field(default=None)
    purpose = (block.__doc__ or "").partition("\n\n")[0]
    return block, Field(default=None, description=purpose)


def _refusing(why: str) -> Any:
    def refuse(value: object) -> object:
        raise fault(why)

    return refuse

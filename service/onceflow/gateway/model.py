"""The gateway file as frozen models. No Spark, no Kafka: only who may post what to where.

Field descriptions become `docs/gateway.schema.json` and the tables of `docs/gateway.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from onceflow.columns import NO_COLUMNS, Columns, Scalar, parse_columns
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import (
    ColumnsDdl,
    DurationMs,
    IdleMs,
    PipelineName,
    SizeBytes,
    TopicName,
    fault,
    not_yet,
    without_default,
)
from onceflow.errors import ConfigError
from onceflow.protocol.guarantee import Guarantee, Level, Weakness

KEY_KINDS = frozenset({"string", "tinyint", "smallint", "int", "bigint"})
"""Types of columns whose values are keys of records: as text, each value has one form."""

WITHOUT_KEY = Weakness(
    "a post without `Idempotency-Key` that is sent again is written again",
    "Give each post a key of its own, and repeat it with that key until it is answered.",
)
FORGOTTEN = Weakness(
    "a key is forgotten after `remember.for`, and a post that is sent again later is written again",
    "Set `remember.for` to longer than clients try.",
)


class PostedTopic(Block):
    """A topic that may be posted to, and what a record of it looks like."""

    format: Annotated[Literal["json"], not_yet("csv", "text", "binary", "avro", "protobuf")] = (
        Field(default="json", description="How a record is written: one JSON object.")
    )
    ddl: ColumnsDdl | None = Field(
        default=None,
        alias="schema",
        description="Fields of a record and their types, as Spark DDL, such as"
        ' "page STRING NOT NULL, views BIGINT". A record that does not fit is refused. Fields that'
        " are not named are let through. Left out: every JSON object fits.",
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="Column whose value, as text, is the key of the record in Kafka, and so decides"
        " the partition, as with Java's clients. It must be text or a whole number. Left out:"
        " records have no key, and go to any partition.",
    )
    writers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")], ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description="Names of the tokens that may post to this topic. Left out: every token with"
        " the role `write`.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A key that is not a column, or whose text would be ambiguous."""
        key, ddl = given.get("key"), given.get("schema")
        if not isinstance(key, str):
            return
        if not isinstance(ddl, str):
            yield ("key",), fault("a key without `schema`", suggestion="Add `schema` with it.")
            return
        try:
            columns = parse_columns(ddl).by_name
        except ConfigError:
            return  # which is a fault already
        kind = columns.get(key)
        if kind is None:
            yield ("key",), fault("not a column", expected=f"one of {', '.join(columns)}")
        elif not isinstance(kind, Scalar) or kind.name not in KEY_KINDS:
            expected = f"a column of type {', '.join(sorted(KEY_KINDS))}"
            yield ("key",), fault(f"{kind.ddl} cannot be a key", expected=expected)

    @property
    def columns(self) -> Columns:
        """The columns of a record; none if every object fits."""
        return NO_COLUMNS if self.ddl is None else parse_columns(self.ddl)


class Remember(Block):
    """How long and how many keys of posts are remembered. All instances share them."""

    for_ms: DurationMs = Field(
        default=3_600_000,
        alias="for",
        json_schema_extra=without_default,
        description="How long a key is remembered after its post was written. Left out: 1 hour.",
    )
    at_most: int = Field(
        default=1_000_000,
        ge=1_000,
        le=100_000_000,
        description="Keys that are remembered at once, shared evenly by the slots. No key is"
        " forgotten early: if there is no room, posts with new keys are refused with 503. A key"
        " takes about 400 bytes of memory in the instance that owns its slot.",
    )
    slots: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Parts that the keys are divided into. Each is owned by one instance, so no"
        " more instances than this write posts with keys; more of them in one instance make it"
        " slower. It cannot be changed later.",
    )


class Limits(Block):
    """Bounds on what clients may send, so that none can take everything."""

    body_bytes: SizeBytes = Field(
        default=1024 * 1024, alias="body", description="Of the body of a post, such as `1 MiB`."
    )
    records: int = Field(default=10_000, ge=1, le=100_000, description="Records of one post.")
    in_flight_bytes: SizeBytes = Field(
        default=64 * 1024 * 1024,
        alias="in_flight",
        description="Bodies of all posts that wait for their answers, in each instance. Further"
        " posts are refused with 429.",
    )
    answer_within_ms: IdleMs = Field(
        default=30_000,
        alias="answer_within",
        json_schema_extra=without_default,
        description="How long a post may wait for the brokers before it is answered with 503. Left"
        " out: 30 seconds.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A body that could never be in flight."""
        body, in_flight = given.get("body", 2**20), given.get("in_flight", 2**26)
        if isinstance(body, int) and isinstance(in_flight, int) and in_flight < body:
            yield ("in_flight",), fault("less than one `body`", expected="as much or more")


class Gateway(Block):
    """Takes records by HTTP and writes them to topics."""

    model_config = ConfigDict(
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"}
    )

    api_version: Literal["onceflow/v1"] = Field(
        alias="apiVersion", description="Version of this file's language."
    )
    kind: Literal["gateway"] = Field(description="Kind of this file.")
    name: PipelineName = Field(
        description="Name of the gateway. Keys are remembered under this name, so a renamed gateway"
        " remembers none."
    )
    topics: dict[TopicName, PostedTopic] = Field(
        min_length=1, description="Topics that may be posted to, by name. They must exist."
    )
    remember: Remember = Field(default=Remember(), description="Remembered keys of posts.")
    limits: Limits = Field(default=Limits(), description="Bounds on what clients may send.")
    takeover_after_ms: IdleMs = Field(
        default=10_000,
        alias="takeover_after",
        json_schema_extra=without_default,
        description="How long after the last sign of life of an instance another one takes its"
        " slots. Left out: 10 seconds. Brokers take 6 seconds to 30 minutes, unless they are set up"
        " differently.",
    )

    def guarantee(self) -> Guarantee:
        """Compute what is promised about each post, and under which conditions."""
        scope = "for posts with `Idempotency-Key` and read_committed readers; else at least once"
        return Guarantee(Level.EXACTLY_ONCE, scope, (WITHOUT_KEY, FORGOTTEN))

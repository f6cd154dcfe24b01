"""The block of the sink: where rows go, how they are encoded, and when they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import TopicName, fault
from onceflow.pipeline.file.formats import SINGLE_COLUMN_SCHEMAS, Avro, Format, wrong_avro
from onceflow.pipeline.file.policies import OnReject
from onceflow.protocol.order import Term


def _checked_term(value: str) -> str:
    try:
        Term.parse(value)
    except ValueError:
        raise fault(
            "not a column to order by",
            expected="a column of the result, such as `at` or `at desc`",
            suggestion="Put a name with blanks in backquotes.",
        ) from None
    return value


def _checked_terms(value: tuple[str, ...]) -> tuple[str, ...]:
    columns = [Term.parse(text).column for text in value]
    if len({*columns}) < len(columns):
        raise fault("a column is named twice", suggestion="Name each column once.")
    return value


OrderTerm = Annotated[
    str,
    AfterValidator(_checked_term),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["at", "at desc"]}),
]


class KafkaSink(Block):
    """Where rows are written, and to which partition."""

    topic: TopicName = Field(description="Output topic. Created if it does not exist.")
    partitions: int | None = Field(
        default=None,
        ge=1,
        description="Partitions of the output topic. Left out: as it is, or 4 if it is created."
        " Recorded at the first start and fixed from then on.",
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="Column that becomes the record's key, as text unless it is BINARY.",
    )
    partitioner: Literal["crc32", "murmur2"] = Field(
        default="crc32",
        description="How the key chooses the partition: `crc32` as librdkafka's `consistent`,"
        " `murmur2` as Java's default.",
    )
    partition: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of a partitioner: the integer column that holds the partition.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A partition from one place."""
        if "partition" in given and "partitioner" in given:
            yield (
                ("partition",),
                fault(
                    "`partition` and `partitioner` both choose the partition",
                    suggestion="Keep one of them.",
                ),
            )


class Sink(Block):
    """The output."""

    kafka: KafkaSink = Field(description="The topic, and how rows are spread over it.")
    format: Format = Field(default="json", description="How a row becomes the payload of a record.")
    avro: Avro | None = Field(default=None, description="The schema of Avro payloads.")
    emit: Literal["final", "updates"] = Field(
        default="final",
        description="`final`: each result once, when its window is closed. `updates`: each result"
        " again at every change.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        description="With `emit: updates`: a further column of this name, BIGINT, last in the"
        " payload. If two rows have one key, the one with the higher number is the newer.",
    )
    order_by: Annotated[tuple[OrderTerm, ...], AfterValidator(_checked_terms)] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description="Columns of the result, each perhaps with `desc`, by which the records of a"
        " batch are ordered in each output partition. Left out, and among equals: see"
        " [the order of records](#the-order-of-records).",
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a row that the output topic does not take: its key is null,"
        " or it is larger than the topic allows. As for sources.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """An Avro schema exactly if the format is Avro; revisions where there may be some."""
        yield from wrong_avro(given)
        if given.get("revision") is None:
            return
        if given.get("emit") != "updates":
            yield (
                ("revision",),
                fault("`emit: final` writes each result once", suggestion="Add `emit: updates`."),
            )
        if given.get("format") in SINGLE_COLUMN_SCHEMAS:
            yield (
                ("revision",),
                fault(
                    f"format {given['format']} holds a single value",
                    suggestion="Choose json, csv or avro.",
                ),
            )

    @property
    def order_terms(self) -> tuple[Term, ...]:
        """The order that `order_by` asks for."""
        return tuple(map(Term.parse, self.order_by or ()))

    @property
    def output_mode(self) -> Literal["append", "update"]:
        """Spark's word for `emit`."""
        return "append" if self.emit == "final" else "update"

    def payload_columns(self, columns: Sequence[str]) -> Sequence[str]:
        """Which columns of the result make up the payload.

        All of them, except where the format holds a single value: there, key and partition columns
        are left out if others remain.
        """
        if self.format not in SINGLE_COLUMN_SCHEMAS:
            return columns
        routing = {self.kafka.key, self.kafka.partition}
        return [name for name in columns if name not in routing] or columns

"""The block `kafka` of a delivery file. Imports no client: a file is checked without brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetBlock, TargetSpec
from onceflow.contracts.values import TopicName
from onceflow.protocol.guarantee import Guarantee, Level


class KafkaBlock(TargetBlock):
    """Topics of another Kafka cluster. Records and position are written in one transaction."""

    takes = "records"

    bootstrap_servers: str = Field(
        min_length=1, description="The target's brokers, as `host:port`, comma separated."
    )
    properties_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with settings of the target's clients by librdkafka's names, one"
        " `name=value` a line: how to sign in, TLS, and those that docs/security.md lists. Relative"
        " to the delivery file. Only this file may hold the password.",
    )
    topic: TopicName | None = Field(
        default=None,
        description="The topic that records are written to. Left out: the name of the topic that"
        " they are read from.",
    )
    partition: Literal["same", "key"] = Field(
        default="same",
        description="`same`: the number of the partition that a record is read from, so that order"
        " and sequences stay; `key`: by the record's key, as Java's clients do it, without the"
        " header of Onceflow, whose sequences would have gaps.",
    )
    create: bool = Field(
        default=False,
        description="Whether a topic that does not exist in the target is created, with as many"
        " partitions as the one that is read. Left out, it must exist.",
    )

    def target(self, spec: TargetSpec) -> Target:
        from onceflow_connectors.kafka.delivery.target import KafkaTarget  # noqa: PLC0415

        return KafkaTarget(self, spec)

    def guarantee(self) -> Guarantee:
        return Guarantee(Level.EXACTLY_ONCE, "from topic to topic, for read_committed readers")

    def topics_elsewhere(self, topics: Sequence[str]) -> Sequence[str]:
        return [self.topic] if self.topic else topics

    @property
    def creates_topics(self) -> bool:
        return self.create

    @property
    def refuses_letters(self) -> str:
        if self.partition == "same":
            return "`partition: same`: readers discard sequences that they have passed"
        return "" if self.topic else "no `topic`: a letter does not go to a topic of its own name"

    def describe(self) -> str:
        where = f"topic {self.topic}" if self.topic else "topics of the same names"
        return f"Kafka at {self.bootstrap_servers}, {where}, partition by {self.partition}"

"""Settings that topics need to keep the guarantee: for new ones, and missing in existing ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.contracts.connector import TopicInfo, TopicSpec
from onceflow.errors import Fault

REPLICATION = 3
"""Replicas of a topic that we create, if there are as many brokers and no other choice."""
MIN_DURABLE_REPLICATION = 2
MIN_IN_SYNC_CONFIG = "min.insync.replicas"
MAX_BYTES_CONFIG = "max.message.bytes"
DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's own."""
LETTER_OVERHEAD_BYTES = 65_536
"""What a letter may have beyond its record: reason, place, and what a record batch adds."""
MIN_LETTER_BYTES = 8 * 1024 * 1024
"""Limit of a topic of letters that we create: records and rows that are refused are often refused
for their size. Hosted clusters allow no more."""
SHORTEST_BEFORE_MS = 30 * 24 * 60 * 60 * 1000
"""A pipeline that stood still between plan and commit for longer is rare enough."""
SHORTEST_AFTER_MS = 10 * 60 * 1000
"""Clocks of a driver and a broker that differ by more are a fault of their own."""
_REPLICATION_CONFIGS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


@dataclass(frozen=True)
class Cluster:
    """The cluster that topics are created on."""

    alive: int
    config: Mapping[str, str]

    def new_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> TopicSpec:
        """A topic that survives the loss of a broker, where the cluster has enough of them."""
        default = int(self.config.get("default.replication.factor", "1"))
        replication = default if default > 1 else min(REPLICATION, self.alive)
        is_weak = int(self.config.get(MIN_IN_SYNC_CONFIG, "1")) < MIN_DURABLE_REPLICATION
        if replication >= REPLICATION and is_weak:
            config = {**config, MIN_IN_SYNC_CONFIG: str(MIN_DURABLE_REPLICATION)}
        return TopicSpec(name, partitions, replication, config)

    def creation_warnings(self, name: str) -> Iterator[Fault]:
        """Find what is wrong with creating a topic now: its replicas stay as few as they are."""
        meant = max(int(self.config.get(setting, "1")) for setting in _REPLICATION_CONFIGS)
        if self.alive < meant:
            yield Fault(
                f"created while {self.alive} of at least {meant} brokers are alive",
                where=name,
                suggestion=f"Start the others first, or create it with {meant} replicas yourself.",
            )
        elif MIN_DURABLE_REPLICATION <= self.alive < REPLICATION:
            yield Fault(
                f"created on {self.alive} brokers: acknowledged records can be lost with one",
                where=name,
                expected=f"{REPLICATION} brokers or more",
            )


def max_bytes(topic: TopicInfo | None) -> int:
    """Largest record batch that a topic takes."""
    config = topic.config if topic else {}
    return int(config.get(MAX_BYTES_CONFIG, DEFAULT_MAX_BYTES))


def durability_warnings(topic: TopicInfo, alive: int) -> Iterator[Fault]:
    """How acknowledged records of a topic can be lost although brokers are there to keep them."""
    if alive < MIN_DURABLE_REPLICATION:
        return
    if topic.replication < MIN_DURABLE_REPLICATION:
        yield Fault("one replica: a lost disk loses acknowledged records", where=topic.name)
    elif int(topic.config.get(MIN_IN_SYNC_CONFIG, "1")) < MIN_DURABLE_REPLICATION:
        yield Fault(
            f"{MIN_IN_SYNC_CONFIG} is 1: acknowledged records can be lost with one broker",
            where=topic.name,
            expected="2 or more",
        )
    if topic.config.get("unclean.leader.election.enable") == "true":
        yield Fault("unclean leader election may lose committed records", where=topic.name)


def timestamp_warnings(topic: TopicInfo) -> Iterator[Fault]:
    """Find settings that refuse or replace the timestamps of records, the clock of their batch."""
    for name, shortest_ms, what in (
        (
            "message.timestamp.before.max.ms",
            SHORTEST_BEFORE_MS,
            "a batch that was planned longer ago is refused at every replay",
        ),
        (
            "message.timestamp.after.max.ms",
            SHORTEST_AFTER_MS,
            "a batch is refused when the driver's clock is further ahead than that",
        ),
    ):
        limit_ms = int(topic.config.get(name, shortest_ms))
        if limit_ms < shortest_ms:
            yield Fault(
                f"{name} is {limit_ms}: {what}",
                where=topic.name,
                expected=f"{shortest_ms} or more",
                suggestion="Raise the setting of the topic.",
            )
    if topic.config.get("message.timestamp.type") == "LogAppendTime":
        yield Fault(
            "message.timestamp.type is LogAppendTime: records do not carry the batch's clock, and a"
            " replay does not write the same bytes",
            where=topic.name,
            expected="CreateTime",
            suggestion="Change the setting of the topic.",
        )


def letter_warnings(topic: TopicInfo, needed_bytes: int) -> Iterator[Fault]:
    """Whether a topic of letters takes every record that may become one."""
    if max_bytes(topic) < needed_bytes:
        yield Fault(
            f"{MAX_BYTES_CONFIG} is {max_bytes(topic)}: of a record that does not fit, the letter"
            " tells only where it came from",
            where=topic.name,
            expected=f"{needed_bytes} or more, for records that the other topics take",
            suggestion="Raise the setting of the topic.",
        )

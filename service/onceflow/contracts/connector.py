"""Connectors: their contract, and how to find them by entry points (`onceflow.connectors`).

The service never imports a connector; it asks for the one that the pipeline file names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from onceflow.errors import ConfigError

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""

ENTRY_POINT_GROUP = "onceflow.connectors"
MAX_BULLETIN_BYTES = 4096
"""Kafka's default limit for the metadata of a committed offset."""


@dataclass(frozen=True)
class Connection:
    """How to reach the brokers. Not part of a pipeline; may hold secrets, so it is never printed.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        properties: further client settings, by librdkafka's names (security, time-outs).
        secrets_digest: changes whenever a file that the properties name changes; clients are kept
            for one digest only.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets_digest: str = ""


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it should be created. `replication=-1` takes the broker's default."""

    name: str
    partitions: int
    replication: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is.

    Args:
        topic_id: changes when the topic is deleted and created again.
        replication: smallest number of replicas of any partition.
        in_sync: smallest number of replicas in sync of any partition.
        config: the effective settings, if they were asked for.
        is_internal: whether it is one of Kafka's own.
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    in_sync: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False


@dataclass(frozen=True)
class ReadRecord:
    """One record as read from a topic, with its headers in order; names may repeat."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """Value of the last header with this name; None if there is none."""
        return dict(self.headers).get(name)


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that holds back the last stable offset of a partition.

    Args:
        start_offset: its first record in that partition.
        transactional_id: None if no coordinator knows the producer any more.
        started_ms: when it began; without a coordinator, when it last wrote.
        timeout_ms: after which its coordinator ends it; None without a coordinator.
        coordinator: the broker that decides it; None if there is none.
    """

    topic: str
    partition: int
    start_offset: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int | None
    coordinator: int | None


class Task(StrEnum):
    """A task that a user needs rights for."""

    RUN = "run"
    """Run it, and look at it; its topics exist."""
    CREATE = "create"
    """Create the topics that it writes to, if they do not exist."""
    VERIFY = "verify"
    """Compare the output with the ledger, or rebuild the ledger from the output."""
    RESEND = "resend"
    """Send dead letters to the source topics again."""
    CONSUME = "consume"
    """Read its output in a consumer group."""


@dataclass(frozen=True)
class Right:
    """A right that a principal needs at the brokers, in Kafka's words.

    Args:
        resource: `topic`, `group`, `transactional_id` or `cluster`.
        name: of the resource; `*` for every.
        is_prefix: whether `name` is a prefix of names.
        operation: e.g. `read`.
        why: the purpose, in a few words.
    """

    task: Task
    resource: str
    name: str
    is_prefix: bool
    operation: str
    why: str


@dataclass(frozen=True)
class PipelineTopics:
    """The topics of a pipeline, by name.

    Args:
        inputs: topics that the file names.
        patterns: regular expressions of further input topics.
    """

    pipeline: str
    inputs: Sequence[str]
    patterns: Sequence[str]
    output: str
    # Further output topics, written in the same transactions.
    beside: Sequence[str]


class Broker(Protocol):
    """Look-ups and plain reads and writes, for preflight, tools and repair. Never for output."""

    def brokers(self, deadline: Deadline) -> int:
        """How many brokers are alive.

        Raises:
            DeadlineError: no broker answers at the address, which the message names.
        """

    def broker_config(self, deadline: Deadline) -> Mapping[str, str]:
        """Settings of one broker, e.g. `transaction.state.log.min.isr`."""

    def topic(self, name: str, deadline: Deadline) -> TopicInfo | None:
        """The topic, or None if it does not exist."""

    def topic_id(self, name: str, deadline: Deadline) -> str | None:
        """Id of the topic, or None if it does not exist. One request: quick enough for a batch."""

    def create_topic(self, spec: TopicSpec, deadline: Deadline) -> None:
        """Create a topic and wait until it is writable. Does nothing if it exists."""

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        """Partition -> (log start offset, last stable offset, high watermark).

        Empty if the topic does not exist.
        """

    def group_offsets(self, group: str, deadline: Deadline) -> Mapping[Place, int]:
        """Place -> next offset that a group has committed; waits for open commits.

        Empty if there is no such group.
        """

    def first_timestamps(
        self, topic: str, offsets: Mapping[int, int], deadline: Deadline
    ) -> Mapping[int, int]:
        """Partition -> unix milliseconds of the first record at or after an offset.

        The record may be undecided. A partition is missing from the result if it has no such
        record, none in time, or no longer has that offset.
        """

    def newest_timestamps(self, topic: str, deadline: Deadline) -> Mapping[int, int]:
        """Partition -> the latest timestamp of its records. Leaves out empty partitions."""

    def open_transactions(
        self, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> Sequence[OpenTransaction]:
        """Transactions that have written to these partitions and are not decided, oldest first.

        Raises:
            ConfigError: this installation or these credentials cannot ask.
            DeadlineError: no answer in time.
        """

    def group_members(self, group: str, deadline: Deadline) -> int:
        """How many consumers have joined a group."""

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[ReadRecord]:
        """Committed records of partition -> [start, end), partition by partition, in order.

        Waits for transactions that are open within a range.

        Raises:
            DeadlineError: a range was not decided, or not read, in time.
            CorruptionError: a range begins before what the partition still holds.
        """

    def publish(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes]],
        deadline: Deadline,
    ) -> int:
        """Write (key, value) pairs as an ordinary producer does; returns how many were acked."""

    def close(self) -> None:
        """Close connections."""


class BulletinBoard(Protocol):
    """Keeps the newest small text of each kind for a pipeline, for other processes to read.

    Not for several threads at once.
    """

    def post(self, kind: int, text: str) -> None:
        """Replace the text of a kind. Returns at once and does not say whether the text arrives.

        Args:
            kind: 0 or 1.
            text: shorter than `MAX_BULLETIN_BYTES` of UTF-8.
        """

    def settle(self, deadline: Deadline) -> None:
        """Wait until what was posted has arrived, or the time is up."""

    def read(self, deadline: Deadline) -> Mapping[int, str]:
        """The newest text of each kind that has one.

        Raises:
            DeadlineError: no answer in time.
            ConfigError: refused for good.
        """

    def close(self) -> None:
        """Close connections. Safe to call twice."""


class Connector(Protocol):
    """The place that pipelines write to: output, ledger and positions. Sources: `source_block`."""

    def incarnation(self, transactional_id: str, connection: Connection) -> Incarnation:
        """Make a fresh incarnation of a transactional id. Only stores."""

    def appender(self, connection: Connection) -> Appender:
        """Make a writer outside transactions. Only stores."""

    def ledger(self, pipeline: str, connection: Connection) -> Ledger:
        """Make a reader of the pipeline's ledger. Only stores."""

    def broker(self, connection: Connection) -> Broker:
        """Make a look-up client. Only stores."""

    def bulletin_board(self, pipeline: str, connection: Connection) -> BulletinBoard:
        """Make the pipeline's board. Only stores."""

    def rights(self, topics: PipelineTopics, task: Task, group: str) -> Sequence[Right]:
        """Exactly the rights that a task needs.

        Args:
            topics: of the pipeline.
            task: the task.
            group: of the consumers, for `Task.CONSUME`.
        """

    def grant(
        self, principal: str, rights: Sequence[Right], connection: Connection, deadline: Deadline
    ) -> None:
        """Grant rights to a principal, in addition to those that it has.

        Args:
            principal: as the brokers name it, e.g. `User:jane`.
            rights: to grant.
            connection: of a user who may grant them.
            deadline: for the answer.

        Raises:
            ConfigError: refused; some may have been granted.
            DeadlineError: no answer in time; some may have been granted.
        """

    def partitions_of(
        self, partitioner: str, keys: Sequence[bytes | None], partitions: int
    ) -> list[int]:
        """Partition of each key. `partitioner` is crc32 or murmur2; a null key counts as empty."""

    def encode_avro(self, schema: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[bytes]:
        """Encode rows as plain Avro datums (no container, no registry prefix)."""


def find_connector(name: str) -> Connector:
    """Load the connector that is registered under `name`.

    Raises:
        ConfigError: there is none; lists those that exist.
    """
    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        raise ConfigError(
            "unknown connector",
            subject=name,
            expected=f"one of {', '.join(sorted(found))}",
        )
    connector: Connector = found[name].load()
    return connector

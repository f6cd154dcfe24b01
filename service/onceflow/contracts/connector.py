"""What a connector offers, and how it is found: entry points of the group `onceflow.connectors`.

The service never imports a connector by name; it asks for the one that the pipeline file names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from onceflow.clock import Deadline
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    # Needs Arrow, which whoever only looks things up need not have installed.
    from onceflow.contracts.source import Source, SourceSpec

ENTRY_POINT_GROUP = "onceflow.connectors"
MAX_BULLETIN_BYTES = 4096
"""What a broker keeps beside a consumer group's offset unless it is told otherwise."""


@dataclass(frozen=True)
class Connection:
    """How to reach the brokers. Not part of a pipeline; may hold secrets, so it is never printed.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        properties: further client settings, by librdkafka's names (security, time-outs).
        secrets_digest: changes whenever a file that the properties name holds something else;
            clients are kept for one digest only.
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
        name: of the topic.
        topic_id: changes when the topic is deleted and created again.
        partitions: how many.
        replication: smallest number of replicas of any partition.
        in_sync: smallest number of replicas in sync of any partition.
        config: its effective settings.
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    in_sync: int
    config: Mapping[str, str]


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
        """The last one of a name; None if there is none."""
        return dict(self.headers).get(name)


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that keeps the last stable offset of a partition where it is.

    Args:
        topic: that it has written to.
        partition: of the topic.
        start_offset: its first record in that partition.
        transactional_id: of its producer; None if no coordinator knows of it any more.
        producer_id: Kafka's number of that producer.
        producer_epoch: of that producer.
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
    """What somebody wants to be allowed to do with a pipeline."""

    RUN = "run"
    """Run it, and look at it; its topics exist."""
    CREATE = "create"
    """Create the topics that it writes to, if they do not exist."""
    VERIFY = "verify"
    """Compare what was written with the ledger, or write the ledger anew from it."""
    RESEND = "resend"
    """Send dead letters to the source topics again."""
    CONSUME = "consume"
    """Read its output in a consumer group."""


@dataclass(frozen=True)
class Right:
    """Something that brokers must let a principal do. Their words are the brokers' own.

    Args:
        task: that needs it.
        resource: `topic`, `group`, `transactional_id` or `cluster`.
        name: of the resource; `*` for every.
        is_prefix: whether it is meant for every resource whose name begins so.
        operation: e.g. `read`.
        why: what it is needed for, in a few words.
    """

    task: Task
    resource: str
    name: str
    is_prefix: bool
    operation: str
    why: str


@dataclass(frozen=True)
class PipelineTopics:
    """What a pipeline reads and writes, by name.

    Args:
        pipeline: its name.
        inputs: topics that are named.
        patterns: regular expressions of topics that are not.
        output: of the sink.
        beside: written in the same transactions.
    """

    pipeline: str
    inputs: Sequence[str]
    patterns: Sequence[str]
    output: str
    beside: Sequence[str]


class Broker(Protocol):
    """Look-ups and plain reads and writes, for preflight, tools and repair. Never for output."""

    def brokers(self, deadline: Deadline) -> int:
        """How many brokers are alive.

        Raises:
            DeadlineError: nobody answers at the address; names it.
        """

    def broker_config(self, deadline: Deadline) -> Mapping[str, str]:
        """Settings of one broker, e.g. `transaction.state.log.min.isr`."""

    def topic(self, name: str, deadline: Deadline) -> TopicInfo | None:
        """The topic, or None if it does not exist."""

    def topic_id(self, name: str, deadline: Deadline) -> str | None:
        """Id of the topic, or None if it does not exist. One request: quick enough for a batch."""

    def create_topic(self, spec: TopicSpec, deadline: Deadline) -> None:
        """Create a topic and wait until it can be written. Existing already is no error."""

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        """Partition -> (log start offset, last stable offset, high watermark).

        Empty if the topic does not exist.
        """

    def group_offsets(self, group: str, deadline: Deadline) -> Mapping[tuple[str, int], int]:
        """(topic, partition) -> next offset that a group has committed; waits for what is open.

        Empty if there is no such group.
        """

    def first_timestamps(
        self, topic: str, offsets: Mapping[int, int], deadline: Deadline
    ) -> Mapping[int, int]:
        """Partition -> unix milliseconds of the first record at or after an offset.

        Whether that record is decided does not matter. A partition is missing that has none, or
        none in time, or no longer has that offset.
        """

    def newest_timestamps(self, topic: str, deadline: Deadline) -> Mapping[int, int]:
        """Partition -> the latest timestamp of its records. An empty partition is missing."""

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
        """Write (key, value) pairs as any ordinary producer would; returns how many were acked."""

    def close(self) -> None:
        """Let go of connections."""


class BulletinBoard(Protocol):
    """Keeps the newest small text of each kind for a pipeline, for other processes to read.

    Not for several threads at once.
    """

    def post(self, kind: int, text: str) -> None:
        """Replace the text of a kind. Returns at once; whether it arrives is not told.

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
        """Let go of connections. Safe to call twice."""


class Connector(Protocol):
    """One kind of system that pipelines read from and write to."""

    def source(self, spec: SourceSpec, connection: Connection) -> Source:
        """Make a source. Only stores; connects at first use. The result can be pickled."""

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
        """All that a task needs, and nothing that it does not.

        Args:
            topics: of the pipeline.
            task: to be done.
            group: of the consumers, for `Task.CONSUME`.
        """

    def grant(
        self, principal: str, rights: Sequence[Right], connection: Connection, deadline: Deadline
    ) -> None:
        """Allow a principal all of these; what it was allowed before stays.

        Args:
            principal: as the brokers name it, e.g. `User:jane`.
            rights: to be granted.
            connection: of somebody who may.
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
        ConfigError: none is; lists those that are.
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

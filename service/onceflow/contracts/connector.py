"""Connectors: their contract, and how to find them by entry points (`onceflow.connectors`).

The service never imports a connector; it asks for the one that the pipeline file names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.record import Record
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.contracts.positions import Positions
    from onceflow.contracts.target import Target
    from onceflow.contracts.target_block import TargetSpec

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""

ENTRY_POINT_GROUP = "onceflow.connectors"
MAX_BULLETIN_BYTES = 4096
"""Kafka's default limit for the metadata of a committed offset."""


@dataclass(frozen=True)
class Connection:
    """How to reach the brokers, as `host:port`, comma separated. Not part of a pipeline.

    Args:
        properties: further client settings, by librdkafka's names. May hold secrets: never printed.
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
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    in_sync: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False

    @property
    def places(self) -> Sequence[Place]:
        """Its partitions."""
        return [(self.name, partition) for partition in range(self.partitions)]


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
    SET = "set"
    """Change its parameters."""
    CONSUME = "consume"
    """Read its output in a consumer group."""
    TARGET = "target"
    """Write to the topics of another cluster: at its brokers. They exist."""
    CREATE_TARGET = "create-target"
    """Create the topics in that cluster, if they do not exist."""


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
    """The topics of a pipeline, by name; `patterns` are of further input topics."""

    pipeline: str
    inputs: Sequence[str]
    patterns: Sequence[str]
    output: str
    # Further output topics, written in the same transactions.
    beside: Sequence[str]
    # The topic of parameters, if there is one.
    controls: Sequence[str] = ()


@dataclass(frozen=True)
class CarriageTopics:
    """The topics of a delivery or an enrichment.

    Args:
        name: under which positions are kept.
        group: that its instances join.
        letters: of dead letters; none or one.
        outputs: that records are written to, in the transactions that move positions.
        is_created: whether `outputs` are created.
        has_positions: whether positions are in Kafka.
        is_elsewhere: whether `outputs`, and with them the positions, are in another cluster.
        is_resent: whether dead letters can be delivered later.
    """

    name: str
    group: str
    inputs: Sequence[str]
    letters: Sequence[str]
    outputs: Sequence[str] = ()
    is_created: bool = False
    has_positions: bool = True
    is_elsewhere: bool = False
    is_resent: bool = False


@dataclass(frozen=True)
class GatewayTopics:
    """The topics that a gateway lets in posts to."""

    gateway: str
    topics: Sequence[str]


Topics: TypeAlias = PipelineTopics | CarriageTopics | GatewayTopics
"""The topics of a file of one kind."""


class Broker(Protocol):
    """Look-ups and plain reads and writes, for preflight, tools and repair. Never for output.

    Every method raises DeadlineError if there is no answer in time, and ConfigError if the brokers
    refuse for good. A topic or group that does not exist is not an error: the answer is empty.
    """

    def brokers(self, deadline: Deadline) -> int:
        """Return how many brokers are alive. An error names the address."""

    def broker_config(self, deadline: Deadline) -> Mapping[str, str]:
        """Return the settings of one broker, e.g. `transaction.state.log.min.isr`."""

    def topic(self, name: str, deadline: Deadline) -> TopicInfo | None:
        """Return the topic with its settings."""

    def topic_id(self, name: str, deadline: Deadline) -> str | None:
        """Return the id of the topic. One request: quick enough for a batch."""

    def create_topic(self, spec: TopicSpec, deadline: Deadline) -> None:
        """Create a topic and wait until it is writable. Does nothing if it exists."""

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        """Return partition -> (log start offset, last stable offset, high watermark)."""

    def group_offsets(self, group: str, deadline: Deadline) -> Mapping[Place, int]:
        """Return the next offsets that a group has committed; wait for open commits."""

    def first_timestamps(
        self, topic: str, offsets: Mapping[int, int], deadline: Deadline
    ) -> Mapping[int, int]:
        """Return partition -> unix milliseconds of the first record at or after an offset.

        The record may be undecided. A partition is missing from the result if it has no such
        record, none in time, or no longer has that offset.
        """

    def offsets_since(self, topic: str, at_ms: int, deadline: Deadline) -> Mapping[int, int]:
        """Return partition -> offset of the first record that is not older than unix milliseconds.

        A partition is missing from the result if it has no such record.
        """

    def newest_timestamps(self, topic: str, deadline: Deadline) -> Mapping[int, int]:
        """Return partition -> the latest timestamp of its records. Leaves out empty partitions."""

    def open_transactions(
        self, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> Sequence[OpenTransaction]:
        """Return the undecided transactions that have written to these partitions, oldest first.

        A ConfigError may also say that this installation cannot ask.
        """

    def group_members(self, group: str, deadline: Deadline) -> int:
        """Return how many consumers have joined a group."""

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[Record]:
        """Yield committed records of partition -> [start, end), partition by partition, in order.

        Waits for transactions that are open within a range.

        Raises:
            CorruptionError: a range begins before what the partition still holds.
        """

    def publish(
        self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]], deadline: Deadline
    ) -> int:
        """Write (key, value) pairs as an ordinary producer does; return how many were acked.

        Raises:
            RecordError: a record is too large, or the topic does not accept it.
            AbortableError: another record failed; others may have been written.
        """

    def close(self) -> None:
        """Close connections."""


class BulletinBoard(Protocol):
    """Keeps the newest small text of each kind for a pipeline, for other processes to read.

    Not for several threads at once.
    """

    def post(self, kind: int, text: str) -> None:
        """Replace the text of a kind, 0 or 1, which is shorter than `MAX_BULLETIN_BYTES` of UTF-8.

        Returns at once and does not say whether the text arrives.
        """

    def settle(self, deadline: Deadline) -> None:
        """Wait until what was posted has arrived, or the time is up."""

    def read(self, deadline: Deadline) -> Mapping[int, str]:
        """Return the newest text of each kind that has one. Raises as `Broker` does."""

    def close(self) -> None:
        """Close connections. Safe to call twice."""


@dataclass(frozen=True)
class Connector:
    """The functions for what a pipeline writes: output, ledger, positions. Sources: `source_block`.

    The makers only store what they are given: nothing connects before its first use.

    Args:
        incarnation: of a transactional id, which is the first argument.
        ledger: of the pipeline that is named first; so is `bulletin_board`.
        positions: of the delivery that is named first.
        topic_target: of records that are read, to the topic that is named, in the cluster that they
            are read from; whether it creates the topic.
        rights: exactly those that a task needs. The group is of the consumers, for `Task.CONSUME`.
            Raises ConfigError for a task that there is not for this kind.
        grant: grants rights to a principal, such as `User:jane`, in addition to those it has; the
            connection is of a user who may. Raises ConfigError if refused and DeadlineError without
            an answer; some may have been granted.
        partitions_of: the partition of each key, by crc32 or murmur2 for this many partitions; a
            null key counts as empty.
        encode_avro: rows as plain Avro datums of a schema (no container, no registry prefix).
    """

    incarnation: Callable[[str, Connection], Incarnation]
    appender: Callable[[Connection], Appender]
    ledger: Callable[[str, Connection], Ledger]
    broker: Callable[[Connection], Broker]
    bulletin_board: Callable[[str, Connection], BulletinBoard]
    positions: Callable[[str, Connection], Positions]
    topic_target: Callable[[TargetSpec, str, bool], Target]
    rights: Callable[[Topics, Task, str], Sequence[Right]]
    grant: Callable[[str, Sequence[Right], Connection, Deadline], None]
    partitions_of: Callable[[str, Sequence[bytes | None], int], list[int]]
    encode_avro: Callable[[str, Sequence[Mapping[str, Any]]], Sequence[bytes]]


def find_connector(name: str) -> Connector:
    """Load the connector that is registered under `name`.

    Raises:
        ConfigError: there is none; lists those that exist.
    """
    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        raise ConfigError(
            "unknown connector", subject=name, expected=f"one of {', '.join(sorted(found))}"
        )
    connector: Connector = found[name].load()
    return connector

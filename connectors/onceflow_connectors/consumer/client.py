"""Contract of the Kafka client library under the consumer, so that both flavours share the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onceflow.clock import SystemClock
from onceflow.contracts.record import Record
from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    Fault,
    FencedError,
    InvariantError,
    OnceflowError,
    RetriableError,
)
from onceflow.protocol.identity import consumer_group
from onceflow_connectors.consumer.records import Partition, Position
from onceflow_connectors.error_codes import Nature, nature_of_code

if TYPE_CHECKING:
    from onceflow_connectors.consumer.holdings import Holdings

CONNECT_TIMEOUT_S = 10.0
"""For the first answer of a broker: short, so that the user soon learns of a wrong address."""
ANSWER_TIMEOUT_S = 30.0
"""For one look-up or commit. Kafka elects a new coordinator within seconds; a longer outage needs
an operator."""

RETRY_INTERVAL_S = 0.1
"""Between two attempts of a look-up: a coordinator needs about that long to load a small group."""
METADATA_END = "\0"
"""Last byte of the metadata of an offset commit. confluent-kafka adds it by itself, and needs it:
it reads up to the next zero byte, wherever in memory that is."""

NO_PROPERTIES: Mapping[str, Any] = {}


T = TypeVar("T")


def patiently(look_up: Callable[[], T]) -> T:
    """Repeat a look-up while its answer is a RetriableError, for `ANSWER_TIMEOUT_S`.

    Clients do not retry every passing error: on a fresh cluster a coordinator is still loading.
    """
    clock = SystemClock()
    deadline = clock.within(ANSWER_TIMEOUT_S)
    while True:  # ends with an answer, or with the deadline
        try:
            return look_up()
        except RetriableError:
            if deadline.is_over:
                raise
            clock.sleep(RETRY_INTERVAL_S)


class Client(Protocol):
    """One membership of a consumer group, read_committed, without auto commit.

    Guaranteed: records of a partition come in offset order, from where `assigned` or `seek` put it,
    without those of aborted transactions. If that offset no longer exists, they come from the start
    of the partition.
    """

    def start(self, holdings: Holdings) -> None:
        """Connect, check that topics and group fit together, and subscribe.

        Tells `holdings` what a rebalance does to this member, inside `poll`.

        Raises:
            ConfigError: no broker answers at the address; a topic does not exist; the group belongs
                to another topic; a property would break the guarantee.
        """

    def poll(self, timeout_s: float, most: int) -> Iterable[Record]:
        """Records that arrive in time. Consume all of them before the next call.

        None if partitions were assigned or taken away meanwhile: they are read from where
        `assigned` puts them.

        Args:
            timeout_s: after which it returns fewer than `most`, perhaps none.
            most: worth waiting for. A client that has more at once may return them.
        """

    def stored(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """The group's committed offsets with their metadata; without those that have none."""

    def partitions(self) -> Sequence[Partition]:
        """All partitions of the topics, whichever member holds them."""

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        """First offset that still exists, and the next offset to be written."""

    def topic_names(self) -> Iterable[str]:
        """Every topic that we may see.

        Raises:
            OnceflowError: no answer.
        """

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit offsets with their metadata and wait for the answer.

        Raises:
            AbortableError: the partitions belong to another member now.
            RetriableError: a rebalance is under way, or the coordinator is moving.
        """

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue to read an assigned partition at `offset`."""

    def stop(self) -> None:
        """Leave the group and close connections. Commits nothing. Safe at any point."""


@dataclass(frozen=True)
class Subscription:
    """The topics and the group of one member, and the checks of both."""

    bootstrap_servers: str
    group: str
    topics: Sequence[str]
    properties: Mapping[str, Any] = field(repr=False)

    def checked_properties(
        self, own: Mapping[str, Any], verified: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Merge the user's properties with `own`.

        Args:
            own: settings that the guarantee depends on.
            verified: defaults of the client that make it verify the brokers' identity.

        Raises:
            ConfigError: the user changed one of these; or topics or group cannot be used.
        """
        harms = dict.fromkeys(own, "would break the guarantee")
        harms |= dict.fromkeys(verified, "would let another server pose as the broker")
        faults = [
            Fault(
                f"{name} = {self.properties[name]!r} {harms[name]}",
                where="properties",
                expected=repr(value),
                suggestion="Leave it out.",
            )
            for name, value in {**own, **verified}.items()
            if name in self.properties and not _equal(self.properties[name], value)
        ]
        if isinstance(self.topics, str) or not self.topics:
            faults.append(Fault(f"{self.topics!r} is not a list of topics", where="topics"))
        if self.group.startswith(consumer_group("")):
            faults.append(
                Fault(
                    f"{self.group!r} is reserved for the position of a pipeline",
                    where="group",
                    suggestion="Choose another name.",
                )
            )
        if faults:
            raise ConfigError("this consumer cannot start", faults=tuple(faults))
        return {**self.properties, **own}

    def unreachable(self, found: str) -> ConfigError:
        """Make the error for an address at which no broker answers."""
        return ConfigError(
            "no broker answers",
            subject=self.bootstrap_servers,
            expected=f"an answer within {CONNECT_TIMEOUT_S:g} s",
            found=found,
            then="check the address and that Kafka is running",
        )

    def refuse_missing(self, missing: Sequence[str]) -> None:
        """Raise ConfigError if any of our topics is in `missing`."""
        if missing:
            raise ConfigError(
                "topics cannot be read",
                subject=", ".join(missing),
                expected="topics that exist and that this consumer may read",
                then="check the names and rights, or start the pipeline that creates them",
            )

    def check_group(self, committed_topics: Iterable[str]) -> None:
        """Raise ConfigError if the group has committed offsets, but of other topics only."""
        found = sorted({*committed_topics})
        if found and not {*found} & {*self.topics}:
            raise ConfigError(
                "this consumer group belongs to another topic",
                subject=self.group,
                expected=f"a new group, or one that has read {', '.join(self.topics)}",
                found=f"offsets of {', '.join(found)}",
                then="choose another group",
            )


def _equal(given: object, own: object) -> bool:
    return str(given).lower() == str(own).lower()


_CONSEQUENCES: Mapping[Nature, type[OnceflowError]] = {
    Nature.PASSING: RetriableError,
    Nature.MEMBER: AbortableError,
    Nature.REFUSED: ConfigError,
    Nature.GONE: CorruptionError,
    # Answers to requests that a consumer never makes, or calls out of order.
    Nature.FENCED: InvariantError,
    Nature.RECORD: InvariantError,
    Nature.BROKEN: InvariantError,
}

_EXCEPTIONS: Mapping[str, type[OnceflowError]] = {
    # Another process has our group.instance.id, which is a consumer's only fatal error.
    **dict.fromkeys(
        ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID", "_FATAL", "_FENCED"), FencedError
    ),
    # Metadata lags behind, or what looks like an error is an event.
    **dict.fromkeys(("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "_PARTITION_EOF"), RetriableError),
    # Files and threads of this machine.
    **dict.fromkeys(("_FS", "_CRIT_SYS_RESOURCE"), ConfigError),
    # Passing only where a producer or an administrative client meets them.
    **dict.fromkeys(("_FAIL", "_CONFLICT", "_NOENT"), InvariantError),
}


def consequence(code: str) -> type[OnceflowError]:
    """Return the class to raise for a code, by its name in `error_codes`."""
    return _EXCEPTIONS.get(code) or _CONSEQUENCES[nature_of_code(code)]

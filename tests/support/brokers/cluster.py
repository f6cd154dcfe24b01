"""Three real brokers to cause faults on, in either way of running them, and who leads what there.

Replication 3 and min ISR 2: any one of them may be lost. What follows holds for child processes
(`children.py`) and for containers (`containers.py`).

The functions wait until what they say is true and agreed on: every broker that answers must tell
the same, those must be more than half, and a broker that they name must be among them. So they
can be called right after a fault, as long as no more than one broker is down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import ClassVar, Self

from kafka.protocol.metadata import CoordinatorType

from tests.support.brokers.view import (
    Addresses,
    agreed,
    agreed_controller,
    agreed_coordinator,
    complaints,
    elect_preferred,
    reassign,
    views,
)
from tests.support.eventually import eventually

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
CLUSTER_TIMEOUT_S = 240.0
"""Brokers are whole again 6 s after a kill; a loaded machine may need forty times that."""


class FaultyBroker(ABC):
    """One of the brokers.

    Attributes:
        node_id: as Kafka knows it; from 1.
        address: `host:port` for clients; the same after `restart`.
    """

    node_id: int
    address: str

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the process exists; a frozen one does."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop it in mid-instruction: connections stay open and nothing answers."""

    @abstractmethod
    def thaw(self) -> None:
        """Let it go on; nothing happens to one that is not frozen."""

    @abstractmethod
    def stop(self) -> None:
        """SIGTERM: it hands over what it leads and closes its logs; returns when it is gone."""

    @abstractmethod
    def restart(self) -> None:
        """Start it again after `kill` or `stop`, with the same address and data. Does not wait."""


class FaultyCluster(ABC):
    """All of them. Lives as long as it is entered."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self._running = ExitStack()
        """Ends them."""

    @property
    @abstractmethod
    def brokers(self) -> Sequence[FaultyBroker]:
        """Each of them, in the order of their ids."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Start every broker and wait until all of them answer."""

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def addresses(self) -> Addresses:
        return {broker.node_id: broker.address for broker in self.brokers}

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        return ",".join(self.addresses.values())

    def wait_until_ready(self) -> None:
        """Wait until every broker answers and sees every partition with all replicas in sync."""
        addresses = self.addresses
        eventually(
            lambda: complaints(addresses), lambda found: not found, timeout_s=CLUSTER_TIMEOUT_S
        )

    def heal(self) -> None:
        """Thaw what is frozen, start what is down, and wait until all is well."""
        for broker in self.brokers:
            if broker.is_running:
                broker.thaw()
            else:
                broker.restart()
        self.wait_until_ready()


def coordinator_of(cluster: FaultyCluster, transactional_id: str) -> FaultyBroker:
    """The coordinator of a transactional id, which may be unused so far."""
    return _coordinator(cluster, transactional_id, CoordinatorType.TRANSACTION)


def group_coordinator_of(cluster: FaultyCluster, group: str) -> FaultyBroker:
    """The coordinator of a consumer group, which may be unused so far."""
    return _coordinator(cluster, group, CoordinatorType.GROUP)


def partition_of_transactional_id(cluster: FaultyCluster, transactional_id: str) -> int:
    """The partition of `__transaction_state` that holds it."""
    coordinator_of(cluster, transactional_id)
    return _java_hash(transactional_id) % _partition_count(cluster, TRANSACTION_STATE)


def partition_of_group(cluster: FaultyCluster, group: str) -> int:
    """The partition of `__consumer_offsets` that holds it."""
    group_coordinator_of(cluster, group)
    return _java_hash(group) % _partition_count(cluster, CONSUMER_OFFSETS)


def leader_of(cluster: FaultyCluster, topic: str, partition: int) -> FaultyBroker:
    """The leader of a partition."""
    found = eventually(
        lambda: agreed(cluster.addresses, topic, partition), timeout_s=CLUSTER_TIMEOUT_S
    )
    assert found is not None
    return _broker(cluster, found.leader)


def controller_of(cluster: FaultyCluster) -> FaultyBroker:
    """The active controller."""
    return _broker(cluster, _known(lambda: agreed_controller(cluster.addresses)))


def move_leader(cluster: FaultyCluster, topic: str, partition: int, to: FaultyBroker) -> None:
    """Make a broker the leader of a partition of which it holds a replica that is in sync.

    It stays the preferred leader, too. Kafka's own topics can be moved like any other.
    """

    def is_moved() -> bool:
        now = agreed(cluster.addresses, topic, partition)
        if now is None or now.leader == to.node_id:
            return now is not None
        # Either is refused while the other, or a broker, is on its way; then we ask again.
        if now.replicas[0] == to.node_id:
            elect_preferred(cluster.addresses, topic, partition)
        else:
            others = [each for each in now.replicas if each != to.node_id]
            reassign(cluster.addresses, topic, partition, [to.node_id, *others])
        return False

    eventually(is_moved, timeout_s=CLUSTER_TIMEOUT_S)


def _coordinator(cluster: FaultyCluster, key: str, kind: CoordinatorType) -> FaultyBroker:
    return _broker(cluster, _known(lambda: agreed_coordinator(cluster.addresses, key, kind)))


def _partition_count(cluster: FaultyCluster, topic: str) -> int:
    view = next(iter(views(cluster.addresses).values()))
    return sum(1 for name, _ in view.partitions if name == topic)


def _known(find: Callable[[], int | None]) -> int:
    found = eventually(find, timeout_s=CLUSTER_TIMEOUT_S)
    assert found is not None
    return found


def _java_hash(text: str) -> int:
    """As Kafka's coordinators compute it: the absolute value of `String.hashCode`."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    # What is above is negative in Java, and the lowest of all is taken for 0.
    return min(value, (1 << 32) - value) % (1 << 31)


def _broker(cluster: FaultyCluster, node_id: int) -> FaultyBroker:
    return next(broker for broker in cluster.brokers if broker.node_id == node_id)

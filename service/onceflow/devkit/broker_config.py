"""Settings of one embedded broker. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
"""Loopback only: there is no authentication."""
COPIES = 3
"""Of every partition, where there are so many brokers."""


@dataclass(frozen=True)
class Node:
    """One broker, which is a controller too.

    Args:
        node_id: from 1.
        port: for clients and other brokers.
        controller_port: for the quorum.
        folder: holds its settings, log and data.
    """

    node_id: int
    port: int
    controller_port: int
    folder: Path

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def properties_file(self) -> Path:
        """Where its settings are written."""
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        """Its output."""
        return self.folder / "broker.log"


def server_properties(node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    """The settings of one of the `nodes`: everything that differs from Kafka's defaults."""
    voters = ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in nodes)
    shared = _REPLICATED if len(nodes) >= COPIES else _SINGLE
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(node.folder / "data"),
        **shared,
        **_QUICK,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """The file that holds them."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())


# The defaults are 3 and 2, with which a transaction on a single broker waits forever.
_SINGLE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# One broker may fail: two of three copies must be there to write.
_REPLICATED = {
    "default.replication.factor": str(COPIES),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    # A killed broker is missed, and may come back, after 9 s by default.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    # How long a broker waits for a frozen controller before it turns to the next; 30 s by default.
    "controller.socket.timeout.ms": "2000",
}

_QUICK = {
    # A topic that springs up by a typo hides the typo.
    "auto.create.topics.enable": "false",
    # 50 partitions each by default, all of which are created at the first use.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # How soon a transaction beyond its time-out is aborted: 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # So that retention and compaction can be watched; 30 s to 5 min by default.
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # 128 MB of heap by default, for logs far larger than these.
    "log.cleaner.dedupe.buffer.size": "16777216",
}

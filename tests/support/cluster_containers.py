"""Three brokers in containers, on a network of their own.

They reach one another by name, and clients reach them at published ports of the loopback address.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from docker.models.containers import Container
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from onceflow.devkit.broker_config import (
    COPIES,
    HOST,
    Node,
    properties_text,
    server_properties,
)
from onceflow.devkit.broker_start import free_ports
from onceflow.devkit.supervisor import GRACE_S
from onceflow.errors import InvariantError
from tests.support.cluster import heal, wait_until_whole
from tests.support.kafka_container import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    INTERNAL_PORT,
    MEMORY,
    PROPERTIES,
    image_tag,
    remove_containers,
)

LABEL = "onceflow.test-cluster"
END_TIMEOUT_S = 30
"""For the engine to notice that a container has ended."""
FROZEN, RUNNING = "paused", "running"


class ContainerBroker:
    """One of the brokers."""

    def __init__(self, node_id: int, address: str, container: Container) -> None:
        self._node_id = node_id
        self._address = address
        self._container = container

    @property
    def node_id(self) -> int:
        """As Kafka knows it; from 1."""
        return self._node_id

    @property
    def address(self) -> str:
        """`host:port` for clients; the same after `restart`."""
        return self._address

    @property
    def is_running(self) -> bool:
        """Whether the container runs; a frozen one does."""
        return self._status() in {RUNNING, FROZEN}

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._container.kill()
        self._container.wait(timeout=END_TIMEOUT_S)

    def freeze(self) -> None:
        """Pause the container: connections stay open and nothing answers."""
        self._container.pause()

    def thaw(self) -> None:
        """Let it go on; nothing happens to one that is not frozen."""
        if self._status() == FROZEN:
            self._container.unpause()

    def stop(self) -> None:
        """SIGTERM: it hands over what it leads and closes its logs; returns when it is gone."""
        self._container.stop(timeout=GRACE_S)

    def restart(self) -> None:
        """Start it again after `kill` or `stop`, with the same address and data. Does not wait."""
        if self.is_running:
            raise InvariantError("a broker that runs was started again", subject=self.address)
        self._container.start()

    def _status(self) -> str:
        self._container.reload()
        return str(self._container.status)


class ContainerCluster:
    """Lives as long as it is entered; what an earlier run left behind is removed first."""

    kind = "containers"

    def __init__(self) -> None:
        self._running = ExitStack()
        self._brokers: tuple[ContainerBroker, ...] = ()

    def __enter__(self) -> Self:
        remove_containers(LABEL)
        with ExitStack() as starting:
            network = starting.enter_context(Network(docker_network_kw={"labels": _labels()}))
            ports = free_ports(COPIES)
            self._brokers = tuple(
                ContainerBroker(
                    number,
                    f"{HOST}:{port}",
                    starting.enter_context(
                        _container(number, ports, network)
                    ).get_wrapped_container(),
                )
                for number, port in enumerate(ports, start=1)
            )
            wait_until_whole(self)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        return ",".join(broker.address for broker in self._brokers)

    @property
    def brokers(self) -> tuple[ContainerBroker, ...]:
        """Each of them, in the order of their ids."""
        return self._brokers

    def wait_until_ready(self) -> None:
        """Wait until every broker answers and every partition has all its replicas in sync."""
        wait_until_whole(self)

    def heal(self) -> None:
        """Undo what was done to brokers, and wait until they are ready."""
        heal(self)


def _container(number: int, ports: Sequence[int], network: Network) -> DockerContainer:
    """One broker; its port is chosen before, so that it stays over a restart."""
    container = DockerContainer(image_tag())
    container.with_network(network).with_network_aliases(_name(number))
    container.with_kwargs(labels=_labels(), mem_limit=MEMORY)
    container.with_copy_into_container(_properties(number, ports).encode(), PROPERTIES)
    # The Docker client takes an address here, of which the annotation does not know.
    published: dict[str, Any] = container.ports
    published[f"{CLIENT_PORT}/tcp"] = (HOST, ports[number - 1])
    return container


def _properties(number: int, ports: Sequence[int]) -> str:
    folder = Path(PROPERTIES).parent
    nodes = [Node(each, CLIENT_PORT, CONTROLLER_PORT, folder) for each in range(1, COPIES + 1)]
    voters = ",".join(f"{n.node_id}@{_name(n.node_id)}:{CONTROLLER_PORT}" for n in nodes)
    overrides = {
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://0.0.0.0:{CLIENT_PORT},INTERNAL://0.0.0.0:{INTERNAL_PORT},"
        f"CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports[number - 1]},"
        f"INTERNAL://{_name(number)}:{INTERNAL_PORT}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    }
    return properties_text(server_properties(nodes[number - 1], nodes, overrides))


def _name(number: int) -> str:
    return f"broker-{number}"


def _labels() -> dict[str, str]:
    return {LABEL: str(os.getpid())}

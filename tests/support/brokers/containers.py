"""Real brokers in containers, on a network of their own.

They reach one another by name, and clients reach them at published ports of the loopback address.
How they are set up comes from the same place as for child processes.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from docker.models.containers import Container
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from onceflow.devkit.broker_config import HOST, Node, properties_text, server_properties
from onceflow.devkit.broker_start import free_ports
from onceflow.devkit.supervisor import GRACE_S
from tests.support.brokers.cluster import FaultyBroker, FaultyCluster
from tests.support.brokers.image import LABEL, image_tag, remove_containers

CLIENT_PORT, CONTROLLER_PORT, INTERNAL_PORT = 9092, 9093, 9094
PROPERTIES = "/var/lib/kafka/server.properties"
MEMORY = "1g"
"""Three times what the broker's bounded heap needs, so that a leak is a failure."""
END_TIMEOUT_S = 30
"""For the engine to notice that a container has ended."""
LINES_OF_LOG = 30
FROZEN, RUNNING = "paused", "running"


class ContainerBroker(FaultyBroker):
    """One of the brokers."""

    def __init__(self, node_id: int, address: str, container: Container) -> None:
        self.node_id = node_id
        self.address = address
        self._container = container

    @property
    def is_running(self) -> bool:
        return self._status() in {RUNNING, FROZEN}

    def kill(self) -> None:
        self._container.kill()
        self._container.wait(timeout=END_TIMEOUT_S)

    def freeze(self) -> None:
        self._container.pause()

    def thaw(self) -> None:
        if self._status() == FROZEN:
            self._container.unpause()

    def stop(self) -> None:
        self._container.stop(timeout=GRACE_S)

    def restart(self) -> None:
        assert not self.is_running, "a broker that runs was started again"
        self._container.start()

    def end_of_log(self) -> str:
        """For a failure: whether it runs, and what it said last."""
        said = self._container.logs(tail=LINES_OF_LOG).decode(errors="replace")
        return f"broker {self.node_id} is {self._status()}; its log ends with:\n{said}"

    def _status(self) -> str:
        self._container.reload()
        return str(self._container.status)


class ContainerCluster(FaultyCluster):
    """A cluster of containers. Leftovers of an earlier run are removed first.

    Args:
        count: of its brokers, 1 or 3.
    """

    kind = "containers"
    brokers: Sequence[ContainerBroker] = ()

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self._count = count

    def __enter__(self) -> Self:
        remove_containers()
        with ExitStack() as starting:
            network = starting.enter_context(Network(docker_network_kw={"labels": _labels()}))
            # Chosen before, so that they stay over a restart.
            ports = free_ports(self._count)
            # A dash in front, as one id in 64 has: so the broker's image always takes one.
            cluster_id = base64.urlsafe_b64encode(b"\xf8" + uuid.uuid4().bytes[1:]).decode()
            containers = [
                starting.enter_context(
                    _container(number, ports, network).with_env(
                        "CLUSTER_ID", cluster_id.rstrip("=")
                    )
                )
                for number in range(1, self._count + 1)
            ]
            self.brokers = [
                ContainerBroker(number, f"{HOST}:{port}", container.get_wrapped_container())
                for number, (port, container) in enumerate(zip(ports, containers, strict=True), 1)
            ]
            try:
                self.wait_until_ready()
            except AssertionError as error:
                raise AssertionError(
                    "\n".join([str(error), *(broker.end_of_log() for broker in self.brokers)])
                ) from error
            self._running = starting.pop_all()
        return self


def _container(number: int, ports: Sequence[int], network: Network) -> DockerContainer:
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
    numbers = range(1, len(ports) + 1)
    nodes = [Node(each, CLIENT_PORT, CONTROLLER_PORT, folder) for each in numbers]
    overrides = {
        "controller.quorum.voters": ",".join(
            f"{each}@{_name(each)}:{CONTROLLER_PORT}" for each in numbers
        ),
        "listeners": f"PLAINTEXT://0.0.0.0:{CLIENT_PORT},INTERNAL://0.0.0.0:{INTERNAL_PORT},"
        f"CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports[number - 1]},"
        f"INTERNAL://{_name(number)}:{INTERNAL_PORT}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    }
    return properties_text({**server_properties(nodes[number - 1], nodes), **overrides})


def _name(number: int) -> str:
    return f"broker-{number}"


def _labels() -> dict[str, str]:
    return {LABEL: str(os.getpid())}

"""A Kafka broker in a container, built from this repository's own image.

The image holds Java and the locked jars; how the broker is set up comes from the same place as for
the embedded one (`onceflow.devkit.broker_config`), so that tests see the same broker either way.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

# Read when testcontainers is imported. Its reaper is an image that cannot be pulled everywhere, so
# containers carry a label and are removed here instead.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from onceflow.devkit.broker_config import HOST, Node, properties_text, server_properties
from onceflow.devkit.broker_start import START_TIMEOUT_S, answers
from onceflow.devkit.jars import DEFINITIONS, JarCache, jar_set
from tests.support.eventually import eventually
from tests.support.kafka_version import kafka_jars

BUILD_FOLDER = Path(__file__).parents[2] / "docker" / "broker"
LABEL = "onceflow.test-broker"
CLIENT_PORT, CONTROLLER_PORT, INTERNAL_PORT = 9092, 9093, 9094
PROPERTIES = "/var/lib/kafka/server.properties"
PING_TIMEOUT_S = 5
BUILD_TIMEOUT_S = 600
"""Longest silence of the engine: installing Java takes 15 s to minutes, by the network."""
MEMORY = "1g"
"""Three times what the broker's bounded heap needs, so that a leak is a failure."""


class UnavailableError(Exception):
    """There is no Docker engine, or it cannot build the image."""


def image_tag() -> str:
    """Name of the image; changes with everything that goes into it."""
    content = hashlib.sha256()
    for file in [*sorted(BUILD_FOLDER.iterdir()), DEFINITIONS / f"{kafka_jars()}.sha256"]:
        if file.is_file():
            content.update(file.read_bytes())
    return f"onceflow/test-broker:{content.hexdigest()[:12]}"


def provide_image() -> str:
    """Make sure that the image exists, building it if need be.

    Returns:
        Engine and image, for people.

    Raises:
        UnavailableError: says why it cannot be had.
    """
    tag = image_tag()
    try:
        engine = DockerClient(timeout=PING_TIMEOUT_S).client
        version = engine.version()["Version"]
    except DockerException as error:
        raise UnavailableError("no Docker engine answers") from error
    try:
        engine.images.get(tag)
    except ImageNotFound:
        _build(tag)
    finally:
        engine.close()
    return f"{tag}, Docker {version}"


def _build(tag: str) -> None:
    engine = DockerClient(timeout=BUILD_TIMEOUT_S).client
    with tempfile.TemporaryDirectory() as context:
        # Left out: jars that somebody fetched for docker/compose.yaml, maybe of another version.
        shutil.copytree(
            BUILD_FOLDER, context, dirs_exist_ok=True, ignore=shutil.ignore_patterns("jars")
        )
        jars = Path(context) / "jars"
        jars.mkdir()
        for jar in JarCache.of_user().ensure(jar_set(kafka_jars())):
            shutil.copy2(jar, jars)
        try:
            engine.images.build(path=context, tag=tag, network_mode="host", rm=True)
        except (BuildError, DockerException) as error:
            raise UnavailableError(f"its image cannot be built: {error}") from error
        finally:
            engine.close()


class KafkaContainer(DockerContainer):
    """One broker, reached at a published port of the loopback address."""

    def __init__(self) -> None:
        super().__init__(image_tag())
        self.with_kwargs(labels={LABEL: str(os.getpid())}, mem_limit=MEMORY)
        # The Docker client takes an address here, of which the annotation does not know.
        ports: dict[str, Any] = self.ports
        ports[f"{CLIENT_PORT}/tcp"] = (HOST,)

    @property
    def bootstrap_servers(self) -> str:
        """The published address."""
        return f"{HOST}:{self.get_exposed_port(CLIENT_PORT)}"

    def start(self) -> Self:
        """Start the broker and wait until it answers at its published address."""
        super().start()
        # The broker has to tell clients an address that is known only now; the image waits for it.
        # Written aside and renamed, because copying into a container is not atomic.
        self.copy_into_container(self._properties().encode(), f"{PROPERTIES}.new")
        self.exec(["mv", f"{PROPERTIES}.new", PROPERTIES])
        eventually(lambda: answers(self.bootstrap_servers, 1), timeout_s=START_TIMEOUT_S)
        return self

    def _properties(self) -> str:
        node = Node(1, CLIENT_PORT, CONTROLLER_PORT, Path(PROPERTIES).parent)
        outside = self.bootstrap_servers
        # The broker talks to itself when it ends transactions, and can't reach the published port.
        inside = f"INTERNAL://{HOST}:{INTERNAL_PORT}"
        overrides = {
            "listeners": f"PLAINTEXT://0.0.0.0:{CLIENT_PORT},{inside},"
            f"CONTROLLER://{HOST}:{CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{outside},{inside}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }
        return properties_text(server_properties(node, [node], overrides))


def remove_containers(label: str = LABEL) -> None:
    """Remove what this process has under a label, and what earlier runs that were killed have."""
    try:
        engine = DockerClient(timeout=PING_TIMEOUT_S).client
    except DockerException:
        return
    for container in engine.containers.list(filters={"label": label}, all=True):
        if _is_ours(container.labels[label]):
            _remove(container)
    for network in engine.networks.list(filters={"label": label}):
        if _is_ours(network.attrs["Labels"][label]):
            network.remove()
    engine.close()


def _remove(container: Container) -> None:
    try:
        container.remove(force=True, v=True)
    except APIError as error:
        # Another worker of this run is doing it, or has done it.
        if error.status_code not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise


def _is_ours(owner: str) -> bool:
    return int(owner) == os.getpid() or not Path(f"/proc/{owner}").exists()


if __name__ == "__main__":
    sys.stdout.write(f"{provide_image()}\n")

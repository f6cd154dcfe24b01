"""The image of the test broker, and what is left of its containers.

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

# Read when testcontainers is imported. Its reaper is an image that cannot be pulled everywhere, so
# containers carry a label and are removed here instead.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.models.containers import Container
from testcontainers.core.docker_client import DockerClient

from onceflow.devkit.jars import DEFINITIONS, JarCache, jar_set
from tests.support.brokers.version import kafka_jars

BUILD_FOLDER = Path(__file__).parents[3] / "docker" / "broker"
LABEL = "onceflow.test-broker"
PING_TIMEOUT_S = 5
BUILD_TIMEOUT_S = 600
"""Longest silence of the engine: installing Java takes 15 s to minutes, by the network."""


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
        # Without jars fetched by hand for docker/compose.yaml, which may be of another version.
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


def remove_containers() -> None:
    """Remove what earlier runs that were killed have left."""
    try:
        engine = DockerClient(timeout=PING_TIMEOUT_S).client
    except DockerException:
        return
    # Another run may remove its own at this moment.
    for container in engine.containers.list(
        filters={"label": LABEL}, all=True, ignore_removed=True
    ):
        if _is_abandoned(container.labels[LABEL]):
            _remove(container)
    for network in engine.networks.list(filters={"label": LABEL}):
        if _is_abandoned(network.attrs["Labels"][LABEL]):
            network.remove()
    engine.close()


def _remove(container: Container) -> None:
    try:
        container.remove(force=True, v=True)
    except APIError as error:
        # Another worker of this run is doing it, or has done it.
        if error.status_code not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise


def _is_abandoned(owner: str) -> bool:
    return not Path(f"/proc/{owner}").exists()


if __name__ == "__main__":
    sys.stdout.write(f"{provide_image()}\n")

"""The service's image, run as the chart runs it: read-only, without capabilities, as user 1000."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.models.containers import Container
from testcontainers.core.docker_client import DockerClient

from tests.support.drivers.service import Reporting

IMAGE = "onceflow:latest"
USER = 1000
LABEL = "onceflow.test-service"
END_TIMEOUT_S = 200
ENVIRONMENT = {
    "ONCEFLOW_SPARK__MASTER": "local[2]",
    "ONCEFLOW_SPARK__SHUFFLE_PARTITIONS": "1",
    "ONCEFLOW_MONITORING__PORT": "0",
    "HOME": "/tmp",
}


@dataclass
class ServiceContainer(Reporting):
    """One container of the image."""

    container: Container

    @property
    def output(self) -> str:
        return str(self.container.logs(stdout=True, stderr=False).decode())

    @property
    def errors(self) -> str:
        return str(self.container.logs(stdout=False, stderr=True).decode())

    @property
    def exit_code(self) -> int | None:
        self.container.reload()
        return None if self.container.status == "running" else self.wait()

    def stop(self) -> int:
        """SIGTERM, as Kubernetes sends it; returns the exit code."""
        self.container.kill("SIGTERM")
        return self.wait()

    def kill(self) -> None:
        """SIGKILL of every process in it."""
        self.container.kill("SIGKILL")
        self.wait()

    def wait(self) -> int:
        """Exit code."""
        return int(self.container.wait(timeout=END_TIMEOUT_S)["StatusCode"])


@contextmanager
def serving(
    command: Sequence[str],
    volumes: Mapping[Path, str],
    environment: Mapping[str, str] | None = None,
    image: str = IMAGE,
    **options: Any,
) -> Iterator[ServiceContainer]:
    """Run a container inside the block, on the machine's own network.

    Args:
        volumes: folder of this machine -> where it is in the container; writable.
    """
    client = DockerClient().client
    container = client.containers.run(
        image,
        [*command],
        detach=True,
        network_mode="host",
        user=f"{USER}:{USER}",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        tmpfs={"/tmp": "exec,mode=1777"},
        environment={**ENVIRONMENT, **(environment or {})},
        volumes={str(here): {"bind": there, "mode": "rw"} for here, there in volumes.items()},
        labels={LABEL: str(os.getpid())},
        **options,
    )
    try:
        yield ServiceContainer(container)
    finally:
        with suppress(APIError):
            container.remove(force=True, v=True)
        client.close()


@contextmanager
def folder_of_the_user() -> Iterator[Path]:
    """A folder that the container's user owns, and may therefore write to."""
    folder = Path(tempfile.mkdtemp(prefix="onceflow-container-"))
    os.chown(folder, USER, USER)
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

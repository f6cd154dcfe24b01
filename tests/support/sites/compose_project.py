"""docker/compose.yaml on this machine's engine, under a name and at ports of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from docker.models.containers import Container
from testcontainers.core.docker_client import DockerClient

from onceflow.devkit.broker_start import free_ports

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker" / "compose.yaml"
STAND_IN = "onceflow/test-prometheus"
"""Debian's Prometheus: the image that compose.yaml names is in a registry only."""
RECIPE = """\
FROM debian:bookworm-slim
RUN install --directory --owner=65534 /prometheus
COPY prometheus /bin/prometheus
USER 65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""
"""As that image, as far as compose.yaml counts on it."""
TIMEOUT_S = 240
LABEL = "com.docker.compose"


def services() -> dict[str, dict[str, Any]]:
    """Services of compose.yaml, as written there."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
    return found


@cache
def program() -> Sequence[str]:
    """Docker's plugin if it is there, else the program of Debian's package."""
    plugin = ["docker", "compose"]
    if subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode == 0:
        return plugin
    assert shutil.which("docker-compose"), "apt-get install docker-compose"
    return ["docker-compose"]


@dataclass(frozen=True)
class ComposeProject:
    """One project."""

    override: Path
    name: str
    broker_port: int
    prometheus_port: int

    @property
    def bootstrap_servers(self) -> str:
        """The broker, seen from outside."""
        return f"127.0.0.1:{self.broker_port}"

    def compose(self, *arguments: str) -> str:
        """Run one command of Compose; returns what it prints."""
        files = ["--file", str(FILE), "--file", str(self.override)]
        done = subprocess.run(
            [*program(), "--project-name", self.name, *files, *arguments],
            check=False,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "BROKER_PORT": str(self.broker_port),
                "PROMETHEUS_PORT": str(self.prometheus_port),
            },
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    @cached_property
    def _engine(self) -> Any:
        return DockerClient().client

    def container(self, service: str) -> Container:
        """The only one of a service, also after its end."""
        labels = [f"{LABEL}.project={self.name}", f"{LABEL}.service={service}"]
        (found,) = self._engine.containers.list(all=True, filters={"label": labels})
        return found

    def left(self) -> list[str]:
        """Names of all that the engine has of this project, without images."""
        wanted = {"label": f"{LABEL}.project={self.name}"}
        return [
            *(each.name for each in self._engine.containers.list(all=True, filters=wanted)),
            *(each.name for each in self._engine.volumes.list(filters=wanted)),
            *(each.name for each in self._engine.networks.list(filters=wanted)),
        ]


@contextmanager
def compose_project() -> Iterator[ComposeProject]:
    """A project, not started. After the block all of it is removed, or this fails."""
    with tempfile.TemporaryDirectory() as folder:
        _build_stand_in(Path(folder))
        override = Path(folder) / "override.yaml"
        override.write_text(f"services: {{prometheus: {{image: {STAND_IN}}}}}\n")
        project = ComposeProject(override, f"onceflow-test-{os.getpid()}", *free_ports(2))
        try:
            yield project
        finally:
            project.compose("down", "--volumes", "--rmi", "local", "--remove-orphans")
        left = project.left()
        assert left == [], f"`down` left {left}"


def _build_stand_in(folder: Path) -> None:
    binary = shutil.which("prometheus")
    assert binary, "apt-get install prometheus"
    shutil.copy2(binary, folder / "prometheus")
    (folder / "Dockerfile").write_text(RECIPE)
    client = DockerClient().client
    client.images.build(path=str(folder), tag=STAND_IN, rm=True)
    client.close()

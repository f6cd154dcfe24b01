"""The cluster, its broker, and releases of the chart."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import FOLDER_VARIABLE, Cluster, cluster
from tests.cluster.release import Release, Took
from tests.cluster.volumes import offer_volume

BROKER = Path(__file__).parent / "manifests" / "broker.yaml"
BROKER_ADDRESS = "kafka-0.kafka.kafka.svc.cluster.local:9092"


TOOK = pytest.StashKey[Took]()


@pytest.fixture(scope="session")
def took(pytestconfig: pytest.Config) -> Took:
    """For the table at the end."""
    return pytestconfig.stash.setdefault(TOOK, {})


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for (mode, fault), seconds in config.stash.get(TOOK, {}).items():
        terminalreporter.write_line(f"{mode:6} {fault:32} {seconds:5.0f} s")


@pytest.fixture(scope="session")
def api() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(scope="session")
def bootstrap_servers(api: Cluster) -> str:
    """A broker in a pod, with a volume."""
    offer_volume(api, volumes(), "kafka", "data-kafka-0", "5Gi")
    api.kubectl("apply", "-f", str(BROKER))
    api.kubectl("-n", "kafka", "rollout", "status", "statefulset/kafka", timeout_s=120)
    return BROKER_ADDRESS


def volumes() -> Path:
    """Where the disks of the cluster are."""
    return Path(os.environ[FOLDER_VARIABLE]) / "volumes"


@pytest.fixture
def namespace(api: Cluster) -> Iterator[str]:
    """Under the restricted pod standard."""
    name = f"streams-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    api.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def release(
    api: Cluster, namespace: str, bootstrap_servers: str, tmp_path: Path
) -> Callable[..., Release]:
    """Makes a release of the chart with a volume for its checkpoints."""

    def make(*flags: str, is_shared: bool = False) -> Release:
        made = Release(api, namespace, bootstrap_servers, tmp_path, flags)
        mode = "ReadWriteMany" if is_shared else "ReadWriteOnce"
        offer_volume(api, volumes(), namespace, made.claim, "10Gi", mode)
        made.make_secret()
        made.install(f"--set=persistence.accessMode={mode}")
        return made

    return make

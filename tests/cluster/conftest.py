"""The cluster, its broker, and releases of the chart."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import FOLDER_VARIABLE, ROUTER, Cluster, cluster
from tests.cluster.drill import Drill, Took
from tests.cluster.release import Release
from tests.cluster.volumes import offer_volume
from tests.support.sites.object_store import ACCESS_KEY, BUCKET, SECRET_KEY, running_store

BROKER = Path(__file__).parent / "manifests" / "broker.yaml"
BROKER_ADDRESS = "kafka-0.kafka.kafka.svc.cluster.local:9092"
MODES = {
    "local": ("ReadWriteOnce", []),
    "standby": ("ReadWriteMany", ["--set=standby=true"]),
    "k8s": (
        "ReadWriteMany",
        ["--set=mode=k8s", "--set=executors.secret=spark", "--set=executors.requestCores=200m"],
    ),
}
"""The mode of access to the volume, and flags of helm."""
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
    with _namespace(api) as name:
        yield name


@contextmanager
def _namespace(api: Cluster) -> Iterator[str]:
    """Under the restricted pod standard."""
    name = f"streams-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield name
    api.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def drill(
    api: Cluster, bootstrap_servers: str, took: Took, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drill]:
    """The two modes, each as users install it."""
    with ExitStack() as stack:
        releases = {}
        for mode in ("local", "k8s"):
            namespace = stack.enter_context(_namespace(api))
            folder = tmp_path_factory.mktemp(mode)
            releases[mode] = install(api, namespace, bootstrap_servers, folder, mode)
        for release in releases.values():
            release.wait_ready()
            release.wait_for_batches(1)
        yield Drill(api, releases, took)


def install(
    api: Cluster, namespace: str, bootstrap_servers: str, folder: Path, mode: str
) -> Release:
    """A release of one of `MODES`, with a volume for its checkpoints; it starts."""
    release = Release(api, namespace, bootstrap_servers, folder, *MODES[mode])
    release.make_secret()
    release.offer_volume(volumes())
    if mode == "standby":
        release.make_claim()
    release.install()
    return release


@pytest.fixture
def bucket(
    api: Cluster, namespace: str, bootstrap_servers: str, took: Took, tmp_path: Path
) -> Iterator[Drill]:
    """Executors whose number changes, with the checkpoint in an object store outside the nodes."""
    with running_store(tmp_path, ROUTER) as store:
        keys = {f"spark.hadoop.fs.s3a.{each}.key" for each in ("access", "secret")}
        conf = {name: value for name, value in store.conf().items() if name not in keys}
        _, flags = MODES["k8s"]
        root = f"s3a://{BUCKET}"
        bucket_flags = [
            "--set=persistence.enabled=false",
            f"--set=checkpointRoot={root}",
            "--set=objectStore.existingSecret=keys",
            f"--set-json=spark.conf={json.dumps(conf)}",
            "--set=executors.instances=1,executors.dynamic.max=3,executors.dynamic.idle=20s",
        ]
        release = Release(
            api, namespace, bootstrap_servers, tmp_path, flags=[*flags, *bucket_flags]
        )
        release.make_secret()
        credentials = (
            f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        )
        literal = f"--from-literal=credentials={credentials}"
        release.kubectl("create", "secret", "generic", "keys", literal)
        release.install()
        yield Drill(api, {"k8s": release}, took)

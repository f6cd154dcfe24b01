"""The scripts that the chart puts into pods do what they say, against a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.deploy.chart import Manifest, one, pods, render
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service import QUICK
from tests.support.everything import is_everything

RUN_TIMEOUT_S = 240


def run_in_pod(
    manifests: Sequence[Manifest], kind: str, broker: RunningBroker, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a pod's command as Kubernetes would, with its settings and this machine for a pod."""
    (pod,) = [pod for place, pod in pods(manifests) if place == kind]
    (container,) = pod["spec"]["containers"]
    (mounted,) = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if v["name"] == "settings"]
    (config,) = [v["value"] for v in container["env"] if v["name"] == "ONCEFLOW_CONFIG"]
    settings = folder / Path(config).name
    settings.write_text(one(manifests, "ConfigMap", mounted)["data"][settings.name])
    given = {v["name"]: v["value"] for v in container["env"] if v["name"].startswith("ONCEFLOW_S")}
    own = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ONCEFLOW_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "ONCEFLOW_CONFIG": str(settings),
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [*container["command"], *container["args"]],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **QUICK, **given, **own},
        timeout=RUN_TIMEOUT_S,
    )


@pytest.fixture
def prefix(topic: Callable[[str], str]) -> str:
    return topic("rt").replace("_", "-")[-60:].strip("-")


def test_helm_test_proves_a_round_trip(broker: RunningBroker, prefix: str, tmp_path: Path) -> None:
    """If everything is wanted also once more, on what the first one left."""
    manifests = render("local", {"tests.prefix": prefix})

    for _ in range(1 + is_everything()):
        done = run_in_pod(manifests, "Pod", broker, tmp_path)

        assert done.returncode == 0, done.stderr
        assert "every record is there once" in done.stdout


def test_the_topic_job_makes_what_is_missing(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("made")
    values = {"topicJob.enabled": True, "topicJob.topics": [{"name": name, "partitions": 3}]}
    manifests = render("local", values)

    for _ in range(2):
        done = run_in_pod(manifests, "Job", broker, tmp_path)

        assert done.returncode == 0, done.stderr
    assert broker_partitions(broker, name) == 3


def test_the_example_has_something_to_show(
    broker: RunningBroker, prefix: str, tmp_path: Path
) -> None:
    """The Job, run twice as by an upgrade, and the very pipeline that the chart makes."""
    example = f"{prefix}-example"
    manifests = render("trial", release=prefix)
    for _ in range(2):
        done = run_in_pod(manifests, "Job", broker, tmp_path)
        assert done.returncode == 0, done.stderr
    data = one(manifests, "ConfigMap", "-pipeline")["data"][f"{example}.yaml"]
    file = tmp_path / f"{example}.yaml"
    file.write_text(data.replace("/var/lib/onceflow/checkpoints", str(tmp_path / "checkpoints")))
    onceflow(broker, "run", str(file), "--until", "caught-up")

    told = onceflow(
        broker, "consume", f"{example}.views", "--verify", "--pipeline", example, "-o", "json"
    )
    keys = [json.loads(line)["key"] for line in told.splitlines()]
    # Of three pages and ten minutes; the newest may not be over.
    assert len(keys) >= 3 * 8
    assert set(keys) == {"/0", "/1", "/2"}


def onceflow(broker: RunningBroker, *arguments: str) -> str:
    own = {"ONCEFLOW_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("onceflow")), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **QUICK, **own},
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def broker_partitions(broker: RunningBroker, topic: str) -> int:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return len(client.list_topics(topic, timeout=10).topics[topic].partitions)

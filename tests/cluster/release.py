"""A release of the chart under test, with a job of which the output is recomputed outside."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import psutil

from onceflow.clock import SystemClock
from tests.cluster.cluster import Cluster
from tests.cluster.programs import SERVICE_IMAGE
from tests.deploy.chart import CHART, helm
from tests.support.eventually import eventually
from tests.support.history import read_ledger, read_topic
from tests.support.views_job import ViewsJob

Took: TypeAlias = dict[tuple[str, str], float]
"""Mode and fault -> seconds until the next batch was committed."""
HELM_TIMEOUT_S = 300
READY_TIMEOUT_S = 180.0
DRIVER, JVM, EXECUTOR = (
    "onceflow serve",
    "org.apache.spark.deploy.SparkSubmit",
    "KubernetesExecutorBackend",
)
CLOCK = SystemClock()


@dataclass
class Release:
    """One installation.

    Args:
        cluster: where.
        namespace: its own.
        bootstrap_servers: of the broker, for pods and for this process.
        folder: for the pipeline file.
        flags: of helm, beside image, broker and pipeline.
    """

    cluster: Cluster
    namespace: str
    bootstrap_servers: str
    folder: Path
    flags: Sequence[str] = ()
    secret: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    job: ViewsJob = field(init=False)
    random: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.job = ViewsJob(self.bootstrap_servers, self.folder)

    @property
    def name(self) -> str:
        """Of the release, as of its only pipeline."""
        return self.job.name

    @property
    def claim(self) -> str:
        return f"checkpoints-{self.name}-0"

    def make_secret(self) -> None:
        """The one by which driver and executors know each other."""
        literal = f"--from-literal=secret={self.secret}"
        self.kubectl("create", "secret", "generic", "spark", literal)

    def install(self, *more: str) -> None:
        """Install it, or bring it to these flags; does not wait."""
        if not self.job.produced:
            self.job.create_input()
            self.job.produce(self.random, records=1_000, seconds=100)
        image, _, tag = SERVICE_IMAGE.rpartition(":")
        lines = self.job.write_file(batch=300).read_text().splitlines()
        file = self.folder / "pipeline-of-the-chart.yaml"
        # The chart puts it on the volume.
        file.write_text("\n".join(line for line in lines if not line.startswith("checkpoint:")))
        self.helm(
            "upgrade",
            "--install",
            self.name,
            str(CHART),
            f"--set=image.repository={image}",
            f"--set=image.tag={tag}",
            "--set=image.pullPolicy=Never",
            f"--set=kafka.bootstrapServers={self.bootstrap_servers}",
            f"--set-file=pipelines.{self.name}={file}",
            *self.flags,
            *more,
        )

    def helm(self, *arguments: str) -> str:
        place = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        done = subprocess.run(
            [helm(), *place, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=HELM_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *arguments: str, timeout_s: float = 60) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, timeout_s=timeout_s)

    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """Those that are there; of `executor`s, or all."""
        found: list[dict[str, Any]] = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods")[
            "items"
        ]
        wanted = "app.kubernetes.io/component"
        return [p for p in found if component in ("", p["metadata"]["labels"].get(wanted))]

    def driver(self, number: int = 0) -> dict[str, Any]:
        """The pod of the service."""
        name = f"{self.name}-{number}"
        return next(pod for pod in self.pods() if pod["metadata"]["name"] == name)

    def logs(self, *arguments: str) -> str:
        return self.kubectl("logs", f"{self.name}-0", *arguments)

    def events(self, *arguments: str) -> list[dict[str, Any]]:
        """Lines of the log that are JSON."""
        lines = self.logs(*arguments).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_ready(self) -> None:
        try:
            eventually(self._is_ready, timeout_s=READY_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(self._told()) from error

    def wait_for_batches(self, count: int) -> None:
        """Until so many more batches are committed."""
        before = self.committed()
        eventually(lambda: self.committed() >= before + count, timeout_s=READY_TIMEOUT_S)

    def committed(self) -> int:
        return len(read_ledger(self.bootstrap_servers, self.job.name))

    def processes(self, pod: dict[str, Any], name: str = "") -> list[psutil.Process]:
        """The processes of a pod whose command has this in it."""
        root = Path("/sys/fs/cgroup/pids")
        found = []
        for file in root.glob(f"onceflow-*/**/pod{pod['metadata']['uid']}/*/cgroup.procs"):
            for pid in map(int, file.read_text().split()):
                process = psutil.Process(pid)
                if name in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, pod: dict[str, Any], name: str) -> None:
        """kill -9 of all processes of this command; there must be one."""
        found = self.processes(pod, name)
        assert found, f"no process of {name}"
        for process in found:
            os.kill(process.pid, signal.SIGKILL)

    def feed(self) -> None:
        """Records for some batches."""
        self.job.produce(self.random, records=400, seconds=40)

    def delete_by_force(self) -> None:
        """The pod of the driver, without a time to end."""
        self.kubectl("delete", "pod", f"{self.name}-0", "--force", "--grace-period=0")

    def seconds_after(self, fault: Callable[[], None]) -> float:
        """How long a running service takes from a fault, in mid-stream, to its next batch."""
        self.wait_ready()
        self.feed()
        begun_s = CLOCK.monotonic_s()
        fault()
        before = self.committed()
        self.feed()
        eventually(lambda: self.committed() > before, timeout_s=READY_TIMEOUT_S)
        return CLOCK.monotonic_s() - begun_s

    def finish(self) -> None:
        """Close the windows, and compare the output with what is computed from the input here."""
        self.job.close_windows()
        expected = len(self.job.expected())
        topic = self.job.output_topic
        eventually(
            lambda: len(read_topic(self.bootstrap_servers, topic)) >= expected,
            timeout_s=READY_TIMEOUT_S,
        )
        self.job.check()

    def _told(self) -> str:
        """What an operator would look at."""
        told = [self.kubectl("get", "pods", "-o", "wide"), self.kubectl("get", "events")]
        return "\n".join([*told, self.logs("--tail=40")])

    def _is_ready(self) -> bool:
        status = self.driver()["status"]
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in status.get("conditions", ())
        )

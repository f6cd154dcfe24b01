"""A release of the chart under test, with a job of which the output is recomputed outside."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.cluster.cluster import Cluster
from tests.cluster.programs import SERVICE_IMAGE
from tests.cluster.volumes import offer_volume
from tests.deploy.chart import CHART, helm
from tests.faults.history.writes import Expected
from tests.support.eventually import eventually
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import Written, read_ledger, read_topic
from tests.support.outside.judge import anomalies

HELM_TIMEOUT_S = 300
READY_TIMEOUT_S = 240.0
OOM_TIMEOUT_S = 120
TOLD_LINES = 40
FIRST, DRIVER, JVM, EXECUTOR = (
    "tini",
    "onceflow serve",
    "org.apache.spark.deploy.SparkSubmit",
    "KubernetesExecutorBackend",
)
"""Of the processes of a container, what their commands have in them."""
HOG = """
import sys
kept, victim = [], f"/proc/{sys.argv[1]}/statm"
try:
    while int(open(victim).read().split()[1]):
        kept.append(b"x" * (32 << 20))
except FileNotFoundError:
    pass
"""
"""Takes memory until a process has ended."""


@dataclass
class Release:
    """One installation.

    Args:
        bootstrap_servers: of the broker, for pods and for this process.
        flags: of helm, besides image, broker and pipeline.
    """

    cluster: Cluster
    namespace: str
    bootstrap_servers: str
    folder: Path
    access: str = "ReadWriteOnce"
    flags: Sequence[str] = ()
    volume: Path = field(init=False)
    secret: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    job: ViewsJob = field(init=False)
    random: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.job = ViewsJob(self.bootstrap_servers, self.folder)

    @property
    def name(self) -> str:
        """The name of the release, and of its only pipeline."""
        return self.job.name

    @property
    def claim(self) -> str:
        return f"checkpoints-{self.name}-0"

    def make_secret(self) -> None:
        """The one by which driver and executors know each other."""
        literal = f"--from-literal=secret={self.secret}"
        self.kubectl("create", "secret", "generic", "spark", literal)

    def install(self, *more: str, edit: Callable[[str], str] = str) -> None:
        """Install it, or bring it to these flags; does not wait."""
        if not self.job.produced:
            self.job.create_input()
            self.job.produce(self.random, records=1_000, seconds=100)
        image, _, tag = SERVICE_IMAGE.rpartition(":")
        lines = edit(self.job.write_file(batch=300).read_text()).splitlines()
        file = self.folder / "pipeline-of-the-chart.yaml"
        # The chart puts it on the volume, or into the bucket.
        lines = [line for line in lines if not line.startswith("checkpoint:")]
        file.write_text("\n".join(lines))
        self.helm(
            "upgrade",
            "--install",
            self.name,
            str(CHART),
            f"--set=image.repository={image}",
            f"--set=image.tag={tag}",
            "--set=image.pullPolicy=Never",
            # All of them must find room on one node.
            "--set=resources.requests.cpu=200m",
            f"--set=kafka.bootstrapServers={self.bootstrap_servers}",
            f"--set=persistence.accessMode={self.access}",
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

    def driver(self) -> dict[str, Any]:
        """The pod of the service; the first of two."""
        name = f"{self.name}-0"
        # A StatefulSet makes another one after the first is gone.
        found = eventually(
            lambda: [pod for pod in self.pods() if pod["metadata"]["name"] == name],
            timeout_s=READY_TIMEOUT_S,
        )
        return found[0]

    def wait_ready(self) -> None:
        try:
            eventually(self._is_ready, timeout_s=READY_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(self.told()) from error

    def wait_for_batches(self, count: int) -> None:
        """Until so many more batches are committed."""
        before = self.committed()
        eventually(lambda: self.committed() >= before + count, timeout_s=READY_TIMEOUT_S)

    def committed(self) -> int:
        return len(read_ledger(self.bootstrap_servers, self.job.name))

    def processes(self, pod: dict[str, Any], name: str) -> list[psutil.Process]:
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

    def kill_in_driver(self, name: str) -> None:
        """The same in the pod of the service."""
        self.kill(self.driver(), name)

    def kill_executor(self) -> None:
        """The process of one of the executors."""
        self.kill(self.pods("executor")[0], EXECUTOR)

    def kill_executors(self) -> None:
        """The processes of all of them."""
        for pod in self.pods("executor"):
            self.kill(pod, EXECUTOR)

    def evict_executor(self) -> None:
        """As a drain of its node does. It must end by itself, before Kubernetes ends it."""
        running = [pod for pod in self.pods("executor") if pod["status"]["phase"] == "Running"]
        name = running[0]["metadata"]["name"]
        self.kubectl("delete", "pod", name, "--wait=false")
        ended = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0"
        self.kubectl("wait", f"pod/{name}", f"--for={ended}", "--timeout=180s", timeout_s=200)

    def exhaust_memory(self, pod: dict[str, Any], name: str) -> None:
        """Fill the container of this process until the kernel kills it, the largest there."""
        (victim,) = self.processes(pod, name)
        lines = Path(f"/proc/{victim.pid}/cgroup").read_text().splitlines()
        group = next(line.rpartition(":")[2] for line in lines if ":memory:" in line)
        into = f"echo $$ >/sys/fs/cgroup/memory{group}/cgroup.procs"
        command = [f'{into} && exec "$@"', "hog", sys.executable, "-c", HOG, str(victim.pid)]
        subprocess.run(["sh", "-c", *command], check=False, timeout=OOM_TIMEOUT_S)
        assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE

    def feed(self) -> None:
        """Records of two seconds."""
        self.job.produce(self.random, records=20, seconds=2)

    def delete_by_force(self) -> None:
        """The pod of the driver, without a time to end."""
        self.kubectl("delete", "pod", f"{self.name}-0", "--force", "--grace-period=0")

    def has_led(self, pod: dict[str, Any]) -> bool:
        """Whether the driver in this pod has committed a batch."""
        return '"event": "batch"' in self.log_of(pod)

    def log_of(self, pod: dict[str, Any]) -> str:
        """All that it wrote, also when its node is cut off, or the pod is gone."""
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        if node is None:
            return ""
        folder = self.cluster.node(node).folder / "pod-logs"
        place = folder / f"{self.namespace}_{meta['name']}_{meta['uid']}"
        return "".join(file.read_text() for file in sorted(place.glob("*/*.log")))

    def replace_volume(self, folder: Path) -> None:
        """A new, empty volume in place of one that is gone with its node."""
        self.kubectl("scale", f"statefulset/{self.name}", "--replicas=0")
        eventually(lambda: not self.pods("driver"), timeout_s=READY_TIMEOUT_S)
        self.kubectl("delete", "pvc", self.claim)
        self.offer_volume(folder)
        self.kubectl("scale", f"statefulset/{self.name}", "--replicas=1")
        eventually(lambda: self.pods("driver"))

    def offer_volume(self, folder: Path) -> None:
        """The disk that its claim will be bound to."""
        arguments = (self.namespace, self.claim, "10Gi", self.access)
        self.volume = offer_volume(self.cluster, folder, *arguments)

    def make_claim(self) -> None:
        """The claim itself, for two pods: of its own, the chart makes one for each."""
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self.claim, "namespace": self.namespace},
                "spec": {
                    "accessModes": [self.access],
                    "storageClassName": "",
                    "resources": {"requests": {"storage": "10Gi"}},
                },
            }
        )
        self.flags = [*self.flags, f"--set=persistence.existingClaim={self.claim}"]

    def begin_generation(self, reason: str) -> None:
        """As an operator would, in a copy of the pod, which may use its volume."""
        copy = f"{self.name}-repair"
        file = f"/etc/onceflow/pipeline/{self.name}.yaml"
        flags = [f"--copy-to={copy}", "--same-node", "--container=onceflow"]
        remedy = ["--new-generation", "--reason", reason, "--until", "caught-up"]
        command = ["env", "ONCEFLOW_SPARK__MASTER=local[2]", "onceflow", "run", file, *remedy]
        self.kubectl("debug", f"{self.name}-0", *flags, "--", *command)
        eventually(lambda: self._has_generation(2), timeout_s=READY_TIMEOUT_S)
        self.kubectl("delete", "pod", copy, timeout_s=200)

    def _has_generation(self, number: int) -> bool:
        return bool(read_ledger(self.bootstrap_servers, self.name)[-1]["generation"] == number)

    def finish(self, generation: int = 1) -> None:
        """Close the windows, and compare the output with what is computed from the input here."""
        self.job.close_windows()
        expected = self.job.expected()
        written = eventually(
            lambda: self._written(generation),
            lambda written: len(written) >= len(expected),
            timeout_s=READY_TIMEOUT_S,
        )
        if generation == 1:
            self.job.check()
        found = anomalies(written, expected=Expected.of_rows(expected))
        assert not [each for each in found if each.name in {"lost_write", "duplicate"}]

    def _written(self, generation: int) -> list[Written]:
        written = read_topic(self.bootstrap_servers, self.job.output_topic)
        return [each for each in written if each.generation == generation]

    def told(self) -> str:
        """Collect all that an operator would look at, also where a node does not answer."""
        told = [self.kubectl("get", "pods", "-o", "wide"), self.kubectl("get", "events")]
        for pod in self.pods("driver"):
            told += self.log_of(pod).splitlines()[-TOLD_LINES:]
        return "\n".join(told)

    def _is_ready(self) -> bool:
        status = self.driver()["status"]
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in status.get("conditions", ())
        )

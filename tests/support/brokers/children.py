"""Real brokers as child processes of the tests, to be killed, frozen and started again.

Nothing is left of them, also not after a SIGKILL of the tests (see `supervisor.py`).
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from onceflow.clock import SystemClock
from onceflow.devkit.broker_config import HOST, Node, properties_text
from onceflow.devkit.broker_start import (
    START_TIMEOUT_S,
    ClusterSettings,
    format_storage,
    free_ports,
    start_cluster,
    wait_for_brokers,
    write_settings,
)
from onceflow.devkit.paths import cache_dir
from onceflow.devkit.supervisor import GRACE_S
from onceflow.errors import DeadlineError
from onceflow.java.choice import Java, find_java
from onceflow.java.classes import archive_name, sharing_options
from tests.support.brokers.cluster import FaultyBroker, FaultyCluster
from tests.support.brokers.supervisor import AttachedProcesses, Spec
from tests.support.brokers.version import kafka_jars


@dataclass(frozen=True)
class ClusterOptions:
    """How a cluster differs from the usual one.

    Args:
        brokers: 1, or 3 to lose one and keep a majority.
        settings: of every broker; win over ours.
        node_settings: by node id, of that broker alone; win over `settings`.
        node_environment: by node id, variables for that broker alone.
        jvm_options: of every broker, in place of those by which it shares classes.
        listeners: names of further listeners of every broker, each on a free port.
    """

    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    node_environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    jvm_options: Sequence[str] = ()
    listeners: Sequence[str] = ()


class ChildProcessBroker(FaultyBroker):
    """One broker of a cluster."""

    def __init__(self, node: Node, processes: AttachedProcesses) -> None:
        self.node_id = node.node_id
        self.address = node.address
        self.log = node.log
        self._index = node.node_id - 1
        self._processes = processes

    @property
    def is_running(self) -> bool:
        return self._processes.exit_code(self._index) is None

    def kill(self) -> None:
        self._processes.order("signal", self._index, signal.SIGKILL)

    def freeze(self) -> None:
        self._processes.order("signal", self._index, signal.SIGSTOP)

    def thaw(self) -> None:
        self._processes.order("signal", self._index, signal.SIGCONT)

    def stop(self) -> None:
        if self._processes.order("stop", self._index) is None:
            raise DeadlineError(f"broker {self.node_id} did not stop within {GRACE_S} s")

    def restart(self) -> None:
        assert not self.is_running, "a broker that runs was started again"
        self._processes.order("start", self._index)


class ChildProcessCluster(FaultyCluster):
    """Lives no longer than this process.

    Only here can a disk be full (`small_disk.py`) or a clock be wrong (`wrong_clock.py`):
    containers share the clock of their kernel, and the disk of their engine.
    """

    kind = "child processes"

    def __init__(self, options: ClusterOptions | None = None) -> None:
        super().__init__()
        self._options = options or ClusterOptions()
        self._listeners: dict[tuple[int, str], int] = {}
        self._plan: ClusterSettings | None = None
        self._processes: AttachedProcesses | None = None

    def __enter__(self) -> Self:
        clock = SystemClock()
        self._plan, self._processes = start_cluster(self._planned, self._attached, clock)
        self._running.callback(self._processes.close)
        return self

    @property
    def brokers(self) -> Sequence[ChildProcessBroker]:
        assert self._plan is not None, "the cluster is not started"
        assert self._processes is not None, "the cluster is not started"
        return [ChildProcessBroker(node, self._processes) for node in self._plan.nodes]

    @property
    def supervisor_pid(self) -> int:
        """The process that holds the brokers."""
        assert self._processes is not None, "the cluster is not started"
        return self._processes.pid

    def address_of(self, node_id: int, listener: str) -> str:
        """`host:port` of one of the further listeners that the options name."""
        return f"{HOST}:{self._listeners[node_id, listener]}"

    def wait_until_ready(self) -> None:
        assert self._plan is not None, "the cluster is not started"
        assert self._processes is not None, "the cluster is not started"
        # Also notices a broker that has ended, and quotes its log.
        deadline = SystemClock().within(START_TIMEOUT_S)
        wait_for_brokers(self._plan.nodes, self._processes, deadline)
        super().wait_until_ready()

    def _planned(self) -> ClusterSettings:
        folder = Path(tempfile.mkdtemp(prefix="onceflow-broker-"))
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
            plan = write_settings(folder, self._options.brokers, kafka_jars())
            for node in plan.nodes:
                # The last of two lines of one name counts.
                with node.properties_file.open("a") as file:
                    file.write(properties_text(self._overrides(node)))
            sharing = sharing_options(class_archive(find_java(), plan.java[-1]))
            program, *rest = plan.java
            format_storage(replace(plan, java=[program, *sharing, *rest]))
            on_failure.pop_all()
        return replace(plan, java=[program, *(self._options.jvm_options or sharing), *rest])

    def _overrides(self, node: Node) -> dict[str, str]:
        options = self._options
        further = ""
        for name, port in zip(options.listeners, free_ports(len(options.listeners)), strict=True):
            self._listeners[node.node_id, name] = port
            further += f",{name}://{HOST}:{port}"
        address = f"PLAINTEXT://{node.address}"
        return {
            "listeners": f"{address},CONTROLLER://{HOST}:{node.controller_port}{further}",
            "advertised.listeners": f"{address}{further}",
            **options.settings,
            **options.node_settings.get(node.node_id, {}),
        }

    def _attached(self, plan: ClusterSettings) -> AttachedProcesses:
        environments = [self._options.node_environment.get(n.node_id, {}) for n in plan.nodes]
        return AttachedProcesses(Spec(plan.commands, plan.logs, environments, str(plan.folder)))


def class_archive(java: Java, class_path: str) -> Path:
    """Where the archive of the broker's classes is, in the user's cache. May not exist."""
    return cache_dir() / "classes" / archive_name("broker", java, class_path)

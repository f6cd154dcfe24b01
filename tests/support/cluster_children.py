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
from types import TracebackType
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
from tests.support.cluster import heal, wait_until_whole
from tests.support.kafka_version import kafka_jars
from tests.support.supervisor import AttachedProcesses, Spec


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


class ChildProcessBroker:
    """One broker of a cluster."""

    def __init__(self, node: Node, processes: AttachedProcesses) -> None:
        self.node_id = node.node_id
        self.address = node.address
        self.log = node.log
        self._index = node.node_id - 1
        self._processes = processes

    @property
    def is_running(self) -> bool:
        """Whether the process exists; a frozen one does."""
        return self._processes.exit_code(self._index) is None

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._processes.send_signal(self._index, signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers from the return of this call on."""
        self._processes.send_signal(self._index, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._processes.send_signal(self._index, signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM: hand over leadership and close the logs; returns when the process is gone.

        Raises:
            DeadlineError: it still runs after `GRACE_S`.
        """
        if self._processes.stop(self._index) is None:
            raise DeadlineError(f"broker {self.node_id} did not stop within {GRACE_S} s")

    def restart(self) -> None:
        """Start again after `kill` or `stop`, on the same port and data.

        Does not wait until it is ready.
        """
        assert not self.is_running, "a broker that runs was started again"
        self._processes.start_again(self._index)


class ChildProcessCluster:
    """Lives as long as it is entered, and no longer than this process.

    Only here can a disk be full (`cluster_disk.py`) or a clock be wrong (`cluster_clock.py`):
    containers share the clock of their kernel, and the disk of their engine.
    """

    kind = "child processes"

    def __init__(self, options: ClusterOptions | None = None) -> None:
        self._options = options or ClusterOptions()
        self._clock = SystemClock()
        self._listeners: dict[tuple[int, str], int] = {}
        self._plan: ClusterSettings | None = None
        self._processes: AttachedProcesses | None = None

    def __enter__(self) -> Self:
        """Start every broker and wait until all of them answer.

        Raises:
            ConfigError: no Java, no jars, or a broker ended; quotes its log.
            DeadlineError: no answer in time. In both cases nothing is left running.
        """
        self._plan, self._processes = start_cluster(self._planned, self._attached, self._clock)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._processes is not None:
            self._processes.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        assert self._plan is not None, "the cluster is not started"
        return self._plan.bootstrap_servers

    @property
    def brokers(self) -> tuple[ChildProcessBroker, ...]:
        """Each of them, in the order of their ids."""
        assert self._plan is not None, "the cluster is not started"
        assert self._processes is not None, "the cluster is not started"
        return tuple(ChildProcessBroker(node, self._processes) for node in self._plan.nodes)

    @property
    def supervisor_pid(self) -> int:
        """The process that holds the brokers."""
        assert self._processes is not None, "the cluster is not started"
        return self._processes.pid

    def address_of(self, node_id: int, listener: str) -> str:
        """`host:port` of one of the further listeners that the options name."""
        return f"{HOST}:{self._listeners[node_id, listener]}"

    def wait_until_ready(self) -> None:
        """Wait until every broker answers and every partition has all its replicas in sync.

        Raises:
            ConfigError: a broker ended; quotes its log.
        """
        assert self._plan is not None, "the cluster is not started"
        assert self._processes is not None, "the cluster is not started"
        deadline = self._clock.within(START_TIMEOUT_S)
        wait_for_brokers(self._plan.nodes, self._processes, deadline)
        wait_until_whole(self)

    def heal(self) -> None:
        """Undo what was done to brokers, and wait until they are ready."""
        heal(self)

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

"""Real Kafka brokers as child processes of this one, from cached jars. Not a mock.

Data lives in a folder of its own, and nothing is left behind, also not after a SIGKILL of this
process (see `supervisor.py`).
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.devkit.broker_config import HOST, Node
from onceflow.devkit.broker_start import (
    START_TIMEOUT_S,
    ClusterOptions,
    ClusterPlan,
    start_cluster,
    wait_for_brokers,
)
from onceflow.devkit.processes import AttachedProcesses
from onceflow.devkit.supervisor import GRACE_S, Spec
from onceflow.errors import DeadlineError, InvariantError


class EmbeddedBroker:
    """One broker of a cluster, to be killed, frozen and started again by tests of faults."""

    def __init__(self, node: Node, index: int, processes: AttachedProcesses) -> None:
        self._node = node
        self._index = index
        self._processes = processes

    @property
    def node_id(self) -> int:
        """As Kafka knows it."""
        return self._node.node_id

    @property
    def address(self) -> str:
        """`host:port`; the same after `restart`."""
        return self._node.address

    def address_of(self, listener: str) -> str:
        """`host:port` of one of the further listeners that the options name."""
        return f"{HOST}:{self._node.listeners[listener]}"

    @property
    def log(self) -> Path:
        """What the broker prints."""
        return self._node.log

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
            raise DeadlineError(
                "an embedded broker did not stop",
                subject=f"broker {self.node_id} at {self.address}",
                expected=f"its end within {GRACE_S} s",
            )

    def restart(self) -> None:
        """Start again after `kill` or `stop`, on the same port and data.

        Does not wait until it is ready.

        Raises:
            InvariantError: it runs.
        """
        if self.is_running:
            raise InvariantError("a broker that runs was started again", subject=self.address)
        self._processes.start_again(self._index)


class EmbeddedCluster:
    """Brokers that live as long as this object is entered, and no longer than this process.

    Args:
        options: how the cluster differs from one ordinary broker.
        clock: to wait with.
    """

    def __init__(self, options: ClusterOptions | None = None, clock: Clock | None = None) -> None:
        self._options = options or ClusterOptions()
        self._clock = clock or SystemClock()
        self._started: tuple[ClusterPlan, AttachedProcesses] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        return self._running()[0].bootstrap_servers

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """Each broker, in the order of their ids."""
        plan, processes = self._running()
        return tuple(EmbeddedBroker(node, i, processes) for i, node in enumerate(plan.nodes))

    def start(self) -> None:
        """Start every broker and wait until all of them answer.

        Raises:
            ConfigError: no Java, no jars, or a broker ended; quotes its log.
            DeadlineError: no answer in time. In both cases nothing is left running.
        """
        folder = Path(tempfile.mkdtemp(prefix="onceflow-broker-"))
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
            self._started = start_cluster(folder, self._options, _attached, self._clock)
            on_failure.pop_all()

    def wait_until_ready(self) -> None:
        """Wait until every broker answers, e.g. after `restart`.

        Raises:
            ConfigError: one of them ended; quotes its log.
            DeadlineError: not all of them answered in time.
        """
        plan, processes = self._running()
        wait_for_brokers(plan.nodes, processes, Deadline.after(self._clock, START_TIMEOUT_S))

    def close(self) -> None:
        """Kill every broker and remove its data. Safe to call twice."""
        if self._started is not None:
            self._started[1].close()
            self._started = None

    def _running(self) -> tuple[ClusterPlan, AttachedProcesses]:
        if self._started is None:
            raise InvariantError("the embedded cluster is not started")
        return self._started


def _attached(plan: ClusterPlan) -> AttachedProcesses:
    spec = Spec(plan.commands, plan.logs, str(plan.folder), environments=plan.environments)
    return AttachedProcesses(spec, plan.supervisor_log)

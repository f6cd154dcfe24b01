"""A node of the cluster, as a machine: its network, what runs on it, and what can happen to it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GROUPS = "onceflow-"
"""Beginning of the names of the nodes' control groups."""
COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Node:
    """One machine of the cluster.

    Args:
        network: process id of who keeps its network namespace.
    """

    name: str
    number: int
    folder: Path
    network: int

    @property
    def address(self) -> str:
        return f"10.90.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The range of its pods' addresses."""
        return f"10.91.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The router's end of its cable."""
        return f"cable-{self.number}"

    @property
    def groups(self) -> str:
        return f"{GROUPS}{self.name}"

    def cut_off(self) -> None:
        """Pull the cable: the node runs on, and no one reaches it."""
        run("ip", "link", "set", self.link, "down")

    def connect(self) -> None:
        """Plug it in again."""
        run("ip", "link", "set", self.link, "up")
        run("ip", "route", "replace", self.pods, "via", self.address)

    def freeze(self) -> None:
        """Stop everything on it, as a hypervisor stops a machine: first what watches the pods."""
        signal_all(self._services(), signal.SIGSTOP)
        signal_all(self._pods(), signal.SIGSTOP)

    def thaw_all_but_kubelet(self) -> None:
        """The kubelet would end the pods that are no longer wanted."""
        services = [each for each in self._services() if "kubelet" not in each.cmdline()]
        signal_all([*services, *self._pods()], signal.SIGCONT)

    def thaw(self) -> None:
        """Let everything run on."""
        signal_all([*self._services(), *self._pods()], signal.SIGCONT)

    def _services(self) -> Sequence[psutil.Process]:
        """containerd, kubelet and proxy."""
        network = Path(f"/proc/{self.network}/ns/net").readlink()
        return [each for each in psutil.process_iter() if _network_of(each) == network]

    def _pods(self) -> Sequence[psutil.Process]:
        root = Path("/sys/fs/cgroup/pids") / self.groups
        pids = {int(pid) for file in root.rglob("cgroup.procs") for pid in file.read_text().split()}
        return [each for each in psutil.process_iter() if each.pid in pids]


def run(*command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command; fails unless it ends with 0."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to those that still run."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _network_of(process: psutil.Process) -> Path | None:
    try:
        return Path(f"/proc/{process.pid}/ns/net").readlink()
    except OSError:  # it has ended meanwhile
        return None

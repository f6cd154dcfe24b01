"""Starts processes under a supervisor (see `supervisor.py`), attached to this process or detached.

Attached processes end with this one, in whatever way it ends. Detached ones stay until somebody
stops them.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import IO, Protocol

from onceflow.devkit.supervisor import Spec
from onceflow.errors import InvariantError

STOP_TIMEOUT_S = 30
"""Above the supervisor's own patience with its children."""


class Processes(Protocol):
    """Several child processes."""

    def start(self) -> None:
        """Start them all. Does not wait until they are ready."""

    def exit_code(self, index: int) -> int | None:
        """How one of them ended, or None while it runs; negative for a signal."""

    def close(self) -> None:
        """End them all and wait until they are gone."""


class AttachedProcesses:
    """Processes that never outlive this one, and that can be killed, frozen and started again.

    Not thread-safe: one order at a time.

    Args:
        spec: without a lock.
        log: file for what the supervisor itself has to say.
    """

    def __init__(self, spec: Spec, log: Path) -> None:
        self._spec = spec
        self._log = log
        self._supervisor: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start them all. Does not wait until they are ready."""
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C on a terminal must reach the user's process alone, which
            # then decides in what order to stop.
            self._supervisor = subprocess.Popen(
                self._spec.arguments(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        for index in range(len(self._spec.commands)):
            self.start_again(index)

    def start_again(self, index: int) -> None:
        """Start one that has ended, with the same command."""
        self._order(f"start {index}")

    def send_signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to one of them; after SIGKILL, wait until it is gone."""
        self._order(f"signal {index} {number:d}")

    def exit_code(self, index: int) -> int | None:
        """How one of them ended, or None while it runs; negative for a signal."""
        return self._order(f"poll {index}")

    def close(self) -> None:
        """Kill them all, remove their data, and wait until both are gone. Safe to call twice."""
        if self._supervisor is not None:
            self._supervisor.communicate(timeout=STOP_TIMEOUT_S)
            self._supervisor = None

    def _order(self, order: str) -> int | None:
        supervisor = self._supervisor
        if supervisor is None:
            raise InvariantError("order to processes that were not started", subject=order)
        stdin, stdout = _pipes(supervisor)
        stdin.write(f"{order}\n")
        stdin.flush()
        answer: int | None = json.loads(stdout.readline())
        return answer


class DetachedProcesses:
    """Processes that outlive this one. When one of them ends, the supervisor ends the others.

    Args:
        spec: with a lock.
        log: file for what the supervisor itself has to say.
    """

    def __init__(self, spec: Spec, log: Path) -> None:
        self._spec = spec
        self._log = log
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the supervisor: SIGTERM to it ends all."""
        return self._started().pid

    def start(self) -> None:
        """Start them all. Does not wait until they are ready."""
        with self._log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                self._spec.arguments(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def exit_code(self, index: int) -> int | None:
        """How the whole ended, or None while it runs: they end together, so `index` is moot."""
        return self._started().poll()

    def close(self) -> None:
        """End them all cleanly and wait until they are gone. Their data stays."""
        supervisor = self._started()
        supervisor.terminate()
        supervisor.wait(STOP_TIMEOUT_S)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._supervisor is None:
            raise InvariantError("detached processes were not started")
        return self._supervisor


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise InvariantError("the supervisor has no pipes", subject=str(process.args))
    return process.stdin, process.stdout

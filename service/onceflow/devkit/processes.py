"""Starts processes under a supervisor (see `supervisor.py`), attached to this process or detached.

Attached processes end with this one, in whatever way it ends. Detached ones stay until somebody
stops them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Protocol

from onceflow.clock import Clock, Deadline
from onceflow.devkit.supervisor import Spec
from onceflow.errors import ConfigError, InvariantError

STOP_TIMEOUT_S = 30
"""Above the supervisor's own patience with its children."""
LOOK_INTERVAL_S = 0.05


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

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._started().pid

    def start_again(self, index: int) -> None:
        """Start one that has ended, with the same command."""
        self._order(f"start {index}")

    def send_signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to one of them; wait for the effect of SIGKILL and SIGSTOP."""
        self._order(f"signal {index} {number:d}")

    def stop(self, index: int) -> int | None:
        """SIGTERM to one of them; how it ended, or None if it has not within `GRACE_S`."""
        return self._order(f"stop {index}")

    def exit_code(self, index: int) -> int | None:
        """How one of them ended, or None while it runs; negative for a signal."""
        return self._order(f"poll {index}")

    def close(self) -> None:
        """Kill them all, remove their data, and wait until both are gone. Safe to call twice."""
        if self._supervisor is not None:
            self._supervisor.communicate(timeout=STOP_TIMEOUT_S)
            self._supervisor = None
        # Done by the supervisor, unless somebody has killed that.
        if self._spec.remove:
            shutil.rmtree(self._spec.remove, ignore_errors=True)

    def _order(self, order: str) -> int | None:
        supervisor = self._started()
        if supervisor.stdin is None or supervisor.stdout is None:
            raise InvariantError("the supervisor has no pipes", subject=str(supervisor.args))
        supervisor.stdin.write(f"{order}\n")
        supervisor.stdin.flush()
        answer: int | None = json.loads(supervisor.stdout.readline())
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._supervisor is None:
            raise InvariantError("attached processes were not started")
        return self._supervisor


class DetachedProcesses:
    """Processes that outlive this one. When one of them ends, the supervisor ends the others.

    Args:
        spec: with a lock.
        log: file for what the supervisor itself has to say.
        clock: to wait with.
    """

    def __init__(self, spec: Spec, log: Path, clock: Clock) -> None:
        self._spec = spec
        self._log = log
        self._clock = clock

    def start(self) -> None:
        """Start them all. Does not wait until they are ready.

        Raises:
            ConfigError: somebody else holds the lock.
        """
        with self._log.open("ab") as log:
            # Returns at once: the supervisor takes the lock and leaves a copy of itself behind.
            started = subprocess.run(
                self._spec.arguments(),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if started.returncode != 0:
            raise ConfigError(
                "detached processes were not started",
                subject=self._spec.lock,
                then=f"{self._log} says why",
            )

    def exit_code(self, index: int) -> int | None:
        """0 once they have ended, or None while they run: they end together, `index` is moot."""
        return 0 if lock_holder(Path(self._spec.lock)) is None else None

    def close(self) -> None:
        """End them all cleanly and wait until they are gone. Their data stays."""
        stop_lock_holder(Path(self._spec.lock), self._clock)


def lock_holder(lock: Path) -> int | None:
    """Process id of the detached supervisor that holds a lock, or None if nobody does."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return int(lock.read_text())
    return None


def stop_lock_holder(lock: Path, clock: Clock) -> None:
    """End the detached supervisor that holds a lock, if there is one, and all its processes.

    Raises:
        DeadlineError: it is still there.
    """
    pid = lock_holder(lock)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = Deadline.after(clock, STOP_TIMEOUT_S)
    while lock_holder(lock) is not None:
        deadline.check("detached processes do not end", subject=f"supervisor {pid}")
        clock.sleep(LOOK_INTERVAL_S)

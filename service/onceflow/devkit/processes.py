"""Starts processes under a supervisor (see `supervisor.py`), and finds it again."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path

from onceflow.clock import Clock
from onceflow.devkit.supervisor import Spec
from onceflow.errors import ConfigError

STOP_TIMEOUT_S = 30
"""Above the supervisor's own patience with its children."""
LOOK_INTERVAL_S = 0.05


class DetachedProcesses:
    """Processes that outlive this one, unless they are temporary.

    When one of them ends, the supervisor ends the others.

    Args:
        spec: commands, logs and lock.
        log: file for the supervisor's own messages.
        clock: to wait with.
    """

    def __init__(self, spec: Spec, log: Path, clock: Clock) -> None:
        self._spec = spec
        self._log = log
        self._clock = clock
        self._started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start them all. Does not wait until they are ready.

        Raises:
            ConfigError: another process holds the lock.
        """
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C on a terminal must reach the user's process alone, which
            # then decides in what order to stop.
            self._started = subprocess.Popen(
                self._spec.arguments(),
                stdin=subprocess.PIPE if self._spec.remove else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Ends at once: the supervisor takes the lock and leaves a copy of itself behind.
        if self._started.wait() != 0:
            raise ConfigError(
                "detached processes were not started",
                subject=self._spec.lock,
                then=f"{self._log} says why",
            )

    def exit_code(self, index: int) -> int | None:
        """0 once they have ended, or None while they run: they end together, `index` is moot."""
        return 0 if lock_holder(Path(self._spec.lock)) is None else None

    def close(self) -> None:
        """End them all and wait until they are gone. Data that is not temporary stays."""
        stop_lock_holder(Path(self._spec.lock), self._clock)
        if self._started is not None and self._started.stdin is not None:
            self._started.stdin.close()


def lock_holder(lock: Path) -> int | None:
    """Process id of the supervisor that holds a lock, or None if it is free."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return int(lock.read_text())
    return None


def stop_lock_holder(lock: Path, clock: Clock) -> None:
    """End the supervisor that holds a lock, if there is one, and all its processes.

    Raises:
        DeadlineError: it is still there.
    """
    pid = lock_holder(lock)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = clock.within(STOP_TIMEOUT_S)
    while lock_holder(lock) is not None:
        deadline.check("detached processes do not end", subject=f"supervisor {pid}")
        clock.sleep(LOOK_INTERVAL_S)

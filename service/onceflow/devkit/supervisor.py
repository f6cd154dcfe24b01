"""A small process that holds brokers as its children, and outlives who asked for them.

It holds a file lock, so that others can tell whether it lives, and runs until SIGTERM or until a
child ends; then it ends the others. A temporary one also ends when its standard input does, whose
other end only the asking process holds, and removes its folder: so nothing is left after a SIGKILL
of that process. Should the supervisor itself be killed, Linux kills its children
(PR_SET_PDEATHSIG). That is set here rather than in the asking process because it fires when the
forking *thread* ends, and this process has one thread only.

It is run as a script, `python -m onceflow.devkit.supervisor SPEC`, and imports nothing heavy.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO

_PR_SET_PDEATHSIG = 1
GRACE_S = 15
"""For a clean stop of a broker whose data is kept; an idle one takes 1 to 2 s."""


@dataclass(frozen=True)
class Spec:
    """The processes to supervise.

    Args:
        commands: one for each child.
        logs: a file for each child's output; appended to.
        lock: file to lock for as long as the supervisor lives.
        remove: folder of a temporary supervisor, to delete at the end; or empty.
    """

    commands: Sequence[Sequence[str]]
    logs: Sequence[str]
    lock: str
    remove: str = ""

    def arguments(self) -> list[str]:
        """The command that runs a supervisor."""
        return [sys.executable, "-m", "onceflow.devkit.supervisor", json.dumps(asdict(self))]


def start_child(
    command: Sequence[str], log: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that dies with this one.

    Args:
        command: program and arguments.
        log: file for its output; appended to.
        environment: variables on top of our own.
    """
    with Path(log).open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            preexec_fn=_die_with_parent,  # noqa: PLW1509  this process has one thread
        )


def end_children(children: Sequence[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    """Send a signal to all, and wait until they are gone."""
    for child in children:
        child.send_signal(number)
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        child.kill()
        child.wait()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _detach(lock: IO[str]) -> None:
    """Hold the lock, with our process id in it, and let go of the asking process."""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # The lock belongs to the open file, which the copy of this process inherits. So the asking
    # process, which waits for the original to end, finds it taken.
    if copy := os.fork():
        lock.truncate(0)
        lock.write(str(copy))
        lock.flush()
        os._exit(0)


def _clean(children: Sequence[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_children(children, number)


def _remove(folder: str) -> None:
    """Delete the folder once the asking process needs it no more; it may read the logs."""
    _wait_for_end_of_input()
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_end_of_input() -> None:
    os.read(sys.stdin.fileno(), 1)  # no process writes


def main() -> None:
    """Supervise what the first argument says."""
    spec = Spec(**json.loads(sys.argv[1]))
    children: list[subprocess.Popen[bytes]] = []
    with ExitStack() as at_end:
        if spec.remove:
            at_end.callback(_remove, spec.remove)
        _detach(at_end.enter_context(Path(spec.lock).open("a")))
        at_end.callback(_clean, children, signal.SIGKILL if spec.remove else signal.SIGTERM)
        signal.signal(signal.SIGTERM, _leave)
        for command, log in zip(spec.commands, spec.logs, strict=True):
            children.append(start_child(command, log))
        signal.signal(signal.SIGCHLD, _leave)
        if all(child.poll() is None for child in children):
            if spec.remove:
                _wait_for_end_of_input()
            else:
                signal.pause()


if __name__ == "__main__":
    main()

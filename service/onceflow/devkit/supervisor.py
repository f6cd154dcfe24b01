"""A small process that holds others as its children, so that none outlives who asked for them.

After a SIGKILL nobody can clean up behind himself; somebody else must. Attached, the supervisor
reads orders from a pipe whose other end only the asking process holds: when that process dies, in
whatever way, the pipe ends, and the supervisor kills its children and removes their data. Detached,
it runs until SIGTERM, or until a child ends, and holds a file lock, so that others can tell whether
it lives. Should the supervisor itself be killed, Linux kills its children (PR_SET_PDEATHSIG). That
is set here rather than in the asking process because it fires when the forking *thread* ends, and
this process has one thread only.

It is run as a script, `python -m onceflow.devkit.supervisor SPEC`, and imports nothing heavy.
Orders: `start I`, `signal I NUMBER`, `stop I`, `poll I`; each is answered by one line.
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
    """What to supervise.

    Args:
        commands: one for each child; `I` of an order counts from 0.
        logs: a file for each child's output; appended to.
        remove: folder to delete at the end, or empty.
        lock: file to lock for as long as the supervisor lives, which makes it detached; or empty.
        environments: for each child, variables on top of the supervisor's own; may be empty.
    """

    commands: Sequence[Sequence[str]]
    logs: Sequence[str]
    remove: str = ""
    lock: str = ""
    environments: Sequence[Mapping[str, str]] = ()

    def arguments(self) -> list[str]:
        """The command that runs a supervisor."""
        return [sys.executable, "-m", "onceflow.devkit.supervisor", json.dumps(asdict(self))]


class _Children:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int) -> int:
        environments = self._spec.environments
        with Path(self._spec.logs[index]).open("ab") as log:
            self._running[index] = subprocess.Popen(
                self._spec.commands[index],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environments[index]} if environments else None,
                preexec_fn=_die_with_supervisor,  # noqa: PLW1509  this process has one thread
            )
        return self._running[index].pid

    def signal(self, index: int, number: int) -> int:
        child = self._running[index]
        child.send_signal(number)
        if number == signal.SIGKILL:
            child.wait()
        elif number == signal.SIGSTOP:
            # Threads go on until they are told. Its exit code, if it ends, is left to `poll`.
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return child.pid

    def poll(self, index: int) -> int | None:
        return self._running[index].poll()

    def stop(self, index: int) -> int | None:
        child = self._running[index]
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
        return child.poll()

    def end(self) -> None:
        for child in self._running.values():
            child.send_signal(signal.SIGTERM if self._spec.lock else signal.SIGKILL)
        for child in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()
            child.wait()


def _die_with_supervisor() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _obey(children: _Children) -> None:
    """Carry out orders until the pipe ends."""
    for line in sys.stdin:
        order, *numbers = line.split()
        index, *rest = (int(number) for number in numbers)
        match order:
            case "start":
                answer: int | None = children.start(index)
            case "signal":
                answer = children.signal(index, *rest)
            case "stop":
                answer = children.stop(index)
            case _:
                answer = children.poll(index)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


def _stay(children: _Children, count: int) -> None:
    """Run every child until one of them ends."""
    for index in range(count):
        children.start(index)
    os.wait()


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


def _clean(children: _Children, folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children.end()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Supervise what the first argument says, then leave nothing behind."""
    spec = Spec(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, _leave)
    with ExitStack() as at_end:
        if spec.lock:
            _detach(at_end.enter_context(Path(spec.lock).open("a")))
        children = _Children(spec)
        at_end.callback(_clean, children, spec.remove)
        if spec.lock:
            _stay(children, len(spec.commands))
        else:
            at_end.enter_context(suppress(BrokenPipeError))
            _obey(children)


if __name__ == "__main__":
    main()

"""Holds brokers as its children and obeys the test process that started it; ends with that.

It reads orders from a pipe whose other end only the test process holds. When that dies, in whatever
way, the pipe ends, and the supervisor kills its children and removes their data. Orders: `start I`,
`signal I NUMBER`, `stop I`, `poll I`; each is answered by one line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass

from onceflow.devkit.supervisor import GRACE_S, end_children, start_child

STOP_TIMEOUT_S = 30
"""Above the supervisor's own patience with its children."""


@dataclass(frozen=True)
class Spec:
    """The processes to supervise.

    Args:
        commands: one for each child; `I` of an order counts from 0.
        environments: for each child, variables on top of the supervisor's own.
        remove: folder to delete at the end.
    """

    commands: Sequence[Sequence[str]]
    logs: Sequence[str]
    environments: Sequence[Mapping[str, str]]
    remove: str


class AttachedProcesses:
    """Processes that never outlive this one, and that can be killed, frozen and started again.

    Not thread-safe: one order at a time.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._supervisor: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start them all. Does not wait until they are ready."""
        # A session of its own: Ctrl-C on a terminal must reach the test process alone, which then
        # decides in what order to stop.
        self._supervisor = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.brokers.supervisor",
                json.dumps(asdict(self._spec)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for index in range(len(self._spec.commands)):
            self.order("start", index)

    @property
    def pid(self) -> int:
        """The supervisor's own process id."""
        return self._started().pid

    def exit_code(self, index: int) -> int | None:
        """How one of them ended, or None while it runs; negative for a signal."""
        return self.order("poll", index)

    def close(self) -> None:
        """Kill them all, remove their data, and wait until both are gone. Safe to call twice."""
        if self._supervisor is not None:
            self._supervisor.communicate(timeout=STOP_TIMEOUT_S)
            self._supervisor = None
        # Done by the supervisor, unless a test has killed that.
        shutil.rmtree(self._spec.remove, ignore_errors=True)

    def order(self, what: str, index: int, *rest: int) -> int | None:
        """Carry out `start`, `signal NUMBER` or `stop` on one of them.

        Waits for the effect of SIGKILL and SIGSTOP, and after SIGTERM (`stop`) for `GRACE_S`.

        Returns:
            How it ended, or None while it runs.
        """
        supervisor = self._started()
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        print(what, index, *map(int, rest), file=supervisor.stdin, flush=True)
        answer: int | None = json.loads(supervisor.stdout.readline())
        return answer

    def _started(self) -> subprocess.Popen[str]:
        assert self._supervisor is not None, "attached processes were not started"
        return self._supervisor


def _obey(spec: Spec, running: dict[int, subprocess.Popen[bytes]]) -> None:
    """Carry out orders until the pipe ends."""
    for line in sys.stdin:
        order, *numbers = line.split()
        index, *rest = (int(number) for number in numbers)
        if order == "start":
            running[index] = start_child(
                spec.commands[index], spec.logs[index], spec.environments[index]
            )
        child = running[index]
        if order == "signal":
            _signal(child, rest[0])
        elif order == "stop":
            child.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
        answer = child.poll()
        print(json.dumps(answer), flush=True)  # noqa: T201  the answer to the order


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    child.send_signal(number)
    if number == signal.SIGKILL:
        child.wait()
    elif number == signal.SIGSTOP:
        # Threads go on until the signal reaches them. If the child ends, `poll` gets its exit code.
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def main() -> None:
    """Obey, then leave nothing behind."""
    spec = Spec(**json.loads(sys.argv[1]))
    running: dict[int, subprocess.Popen[bytes]] = {}
    with ExitStack() as at_end:
        at_end.callback(shutil.rmtree, spec.remove, ignore_errors=True)
        at_end.callback(lambda: end_children([*running.values()], signal.SIGKILL))
        at_end.enter_context(suppress(BrokenPipeError))
        _obey(spec, running)


if __name__ == "__main__":
    main()

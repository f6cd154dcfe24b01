"""Runs the parts of a sweep, each in a process of its own, and keeps what came of them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow.clock import Clock
from tests.faults.row import Row
from tests.faults.sweep.frozen import ROOT, current_code
from tests.faults.sweep.recording import RESULTS_VARIABLE, SEED_VARIABLE
from tests.faults.sweep.results import FILE, Outcome, Result, What, append, of_code, read

PLUGIN = "tests.faults.sweep.recording"
END_GRACE_S = 120.0
"""For an interrupted part to end its brokers and services."""
PR_SET_PDEATHSIG = 1
MAX_PASSES = 2
"""Over the tests of one seed: the second is for those whose process died under them."""


@dataclass(frozen=True)
class Part:
    """One part that is a command instead of a test.

    Args:
        module: its command; takes `--json FILE`.
        arguments: of the command.
        name: says what makes it what it is.
    """

    what: What
    name: str
    seed: int
    module: str
    arguments: Sequence[str]

    @property
    def again(self) -> str:
        return " ".join([".venv/bin/python -m", self.module, *self.arguments])


class Runs:
    """Runs what has no result yet.

    Args:
        folder: for results and whatever the parts leave.
        clock: to measure with.
        workers: tests at a time.
    """

    def __init__(self, folder: Path, clock: Clock, workers: int = 1) -> None:
        self.file = folder / FILE
        self._folder = folder
        self._clock = clock
        self._workers = workers
        self._code = str(current_code())

    def results(self) -> Sequence[Result]:
        """Results for the code as it is."""
        return of_code(read(self.file), self._code)

    def collect(self, rows: Sequence[Row], seed: int) -> Sequence[str]:
        """Node ids of the tests of these rows; the seed draws some of them."""
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *_tests(rows)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, SEED_VARIABLE: str(seed)},
            check=True,
            capture_output=True,
            text=True,
        )
        return [line for line in done.stdout.splitlines() if "::" in line]

    def missing(self, tests: Sequence[str], seed: int) -> Sequence[str]:
        """Tests without a result for this seed."""
        there = {r.name for r in self.results() if r.what is What.TEST and r.seed == seed}
        return [test for test in tests if test not in there]

    def play(self, rows: Sequence[Row], tests: Sequence[str], seed: int) -> None:
        """Run what is missing of the tests of these rows for one seed."""
        environment = {SEED_VARIABLE: str(seed), RESULTS_VARIABLE: str(self.file)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "--tb=short", *_tests(rows)]
        if self._workers > 1:
            command += [
                "-n",
                str(self._workers),
                "--dist",
                "worksteal",
                "--max-worker-restart",
                "0",
            ]
        for _ in range(MAX_PASSES):
            if self.missing(tests, seed):
                _run(command, environment)

    def has(self, part: Part) -> bool:
        """Whether it has a result."""
        return any(
            (r.what, r.name, r.seed) == (part.what, part.name, part.seed) for r in self.results()
        )

    def run(self, part: Part) -> Result:
        """Run it and keep its result."""
        told_in = self._folder / f"{part.what.value}-{part.seed}.json"
        told_in.unlink(missing_ok=True)
        command = [sys.executable, "-m", part.module, *part.arguments]
        command += ["--json", str(told_in)]
        begin_s = self._clock.monotonic_s()
        code = _run(command, {})
        result = Result(
            what=part.what,
            name=part.name,
            seed=part.seed,
            code=self._code,
            outcome=Outcome.PASSED if code == 0 else Outcome.FAILED,
            seconds=round(self._clock.monotonic_s() - begin_s, 1),
            again=part.again,
            says="" if code == 0 else f"exit code {code}",
            figures=_told(told_in),
        )
        append(self.file, result)
        return result


def _told(file: Path) -> dict[str, Any]:
    """Read what a part wrote: one value, or JSON lines."""
    if not file.exists():
        return {}
    text = file.read_text()
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"lines": [json.loads(line) for line in text.splitlines()]}


def _tests(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(test for row in rows for test in row.tests))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  one thread, and nothing but a system call
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait(END_GRACE_S)
        raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end_with_parent() -> None:
    """A sweep that is killed takes along what it runs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

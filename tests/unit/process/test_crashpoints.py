"""An armed crash point stops the process there, once, and leaves a proof that it did."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint, reach
from tests.support.eventually import eventually

TIMEOUT_S = 30
PASS_THREE_TIMES = """
from onceflow.crashpoints import CrashPoint, reach
for arrival in range(3):
    reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.AFTER_COMMIT)
    print(arrival, flush=True)
"""

PASS_IN_A_THREAD = """
import mmap, threading
from onceflow.crashpoints import CrashPoint, reach
with open("passed", "r+b") as file:
    passed = mmap.mmap(file.fileno(), 1)
def work():
    reach(CrashPoint.BEFORE_COMMIT)
    passed[0] = 1
worker = threading.Thread(target=work)
worker.start()
worker.join()
"""


Start = Callable[[str | None], subprocess.Popen[str]]


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "proof"


@pytest.fixture
def start(proof: Path) -> Iterator[Start]:
    """Starts a process that is armed, and kills it in the end should it still be there."""
    with ExitStack() as at_end:

        def _start(arming: str | None) -> subprocess.Popen[str]:
            environment = {k: v for k, v in os.environ.items() if k != ENVIRONMENT_VARIABLE}
            environment[PROOF_VARIABLE] = str(proof)
            if arming is not None:
                environment[ENVIRONMENT_VARIABLE] = arming
            process = at_end.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PASS_THREE_TIMES],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            at_end.callback(process.kill)
            return process

        yield _start


@pytest.mark.parametrize(
    ("arming", "printed"),
    [
        ("after_commit", ""),
        ("after_commit:kill", ""),
        ("after_commit:kill:1", ""),
        ("before_commit:kill:3", "0\n1\n"),
    ],
)
def test_the_process_is_killed_at_the_arrival_that_was_asked_for(
    arming: str, printed: str, proof: Path, start: Start
) -> None:
    process = start(arming)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == -signal.SIGKILL
    assert output == printed
    assert proof.read_text() == arming.partition(":")[0]


def test_the_process_is_frozen_and_goes_on_from_there(proof: Path, start: Start) -> None:
    process = start("after_commit:stop:2")
    eventually(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT))
    assert proof.read_text() == "after_commit"

    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, output) == (0, "0\n1\n2\n")


@pytest.mark.parametrize("arming", [None, "", "after_claim", "after_commit:kill:4"])
def test_nothing_happens_at_a_point_that_is_not_reached(
    arming: str | None, proof: Path, start: Start
) -> None:
    process = start(arming)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, output) == (0, "0\n1\n2\n")
    assert not proof.exists()


@pytest.mark.parametrize("arming", ["nowhere", "after_commit:explode", "after_commit:kill:soon"])
def test_an_unreadable_arming_is_refused_rather_than_ignored(arming: str, start: Start) -> None:
    process = start(arming)
    _, complaint = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode != 0
    assert "ConfigError" in complaint
    assert arming in complaint


def test_points_that_are_not_armed_can_be_passed_in_this_very_process() -> None:
    for point in CrashPoint:
        reach(point)


def test_the_protocol_names_every_crash_point() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert [point for point in CrashPoint if not re.search(rf"\b{point}\b", text)] == []


def test_a_thread_is_stopped_where_it_is_though_others_wait(tmp_path: Path) -> None:
    """A stop that another thread takes first lets this one go on for a moment."""
    environment = {**os.environ, ENVIRONMENT_VARIABLE: "before_commit:stop"}
    command = [sys.executable, "-c", PASS_IN_A_THREAD]
    passed = tmp_path / "passed"
    passed.write_bytes(b"\0")
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as process:
        try:
            watched = psutil.Process(process.pid)
            eventually(lambda: watched.status() == psutil.STATUS_STOPPED, timeout_s=TIMEOUT_S)
            assert passed.read_bytes() == b"\0"
        finally:
            process.kill()

"""Processes that plan sources: forked, or started as Spark would where no process forks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from onceflow.runtime.spark import planner_start
from onceflow.runtime.spark.home import make_spark_home
from onceflow.runtime.spark.launch import PLANNERS, PLANNERS_ADDRESS, WORKER_PYTHON
from onceflow.runtime.spark.planner_start import is_done_elsewhere
from onceflow.runtime.spark.planners import LENGTH, MAX_REQUEST_BYTES, RUNNER
from tests.support.eventually import eventually

TIMEOUT_S = 60
PROGRAM = """\
import os, sys
print(os.getpid(), os.getcwd(), os.environ["MINE"], "ONLY_OF_THE_SERVER" in os.environ,
      "pyarrow" in sys.modules, *sys.argv[1:], flush=True)
print("an error", file=sys.stderr, flush=True)
sys.stdin.read()
"""
"""Instead of Spark's program. What was imported before tells whether it was forked."""


@dataclass
class Planners:
    """The process that forks, and what holds it instead of a JVM."""

    process: subprocess.Popen[bytes]
    name: str
    secret: str
    jvm: int

    @property
    def address(self) -> str:
        return f"{self.name} {self.secret}"

    def end_jvm(self) -> None:
        """Close what only the JVM holds."""
        os.close(self.jvm)
        self.jvm = os.open(os.devnull, os.O_RDONLY)


@contextmanager
def serving() -> Iterator[Planners]:
    name, secret = f"test-{uuid.uuid4().hex}", uuid.uuid4().hex
    address = f"{name} {secret}"
    watched, jvm = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        passed = (listener.fileno(), watched)
        process = subprocess.Popen(
            [sys.executable, "-m", PLANNERS, *map(str, passed)],
            pass_fds=passed,
            env={**os.environ, PLANNERS_ADDRESS: address, "ONLY_OF_THE_SERVER": "1"},
        )
    os.close(watched)
    planners = Planners(process, name, secret, jvm)
    try:
        yield planners
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        os.close(planners.jvm)


@pytest.fixture
def planners() -> Iterator[Planners]:
    with serving() as running:
        yield running


@contextmanager
def asked(address: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that asks for one to run the program above."""
    (folder / "program.py").write_text(PROGRAM)
    with subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            planner_start.__file__,
            PLANNERS_ADDRESS,
            "-m",
            "program",
            "an argument",
        ],
        env={**os.environ, "PYTHONPATH": str(folder), "MINE": "a b", PLANNERS_ADDRESS: address},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_words(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Process that runs the program, and what it says of itself."""
    assert process.stdout is not None
    number, _, rest = process.stdout.readline().strip().partition(" ")
    return int(number), rest


def test_it_is_forked_with_all_that_spark_gave_it(planners: Planners, tmp_path: Path) -> None:
    with asked(planners.address, tmp_path) as process:
        number, told = first_words(process)
        assert told == f"{tmp_path} a b False True an argument"
        assert psutil.Process(number).ppid() == planners.process.pid
        assert process.communicate(timeout=TIMEOUT_S) == ("", "an error\n")
    assert process.returncode == 0


def test_one_ends_with_what_spark_started_for_it(planners: Planners, tmp_path: Path) -> None:
    with asked(planners.address, tmp_path) as process, asked(planners.address, tmp_path) as other:
        number, _ = first_words(process)
        of_other, _ = first_words(other)
        forked = psutil.Process(number)
        process.kill()
        # Gone altogether: no zombie either. Another process may have its number by then.
        eventually(lambda: not forked.is_running())
        assert psutil.pid_exists(of_other)


def test_what_spark_started_ends_with_the_one_that_was_forked(
    planners: Planners, tmp_path: Path
) -> None:
    with asked(planners.address, tmp_path) as process:
        number, _ = first_words(process)
        os.kill(number, signal.SIGKILL)
        process.wait(TIMEOUT_S)


def test_without_the_process_that_forks_python_is_started(
    planners: Planners, tmp_path: Path
) -> None:
    planners.process.kill()
    planners.process.wait(TIMEOUT_S)
    with asked(planners.address, tmp_path) as process:
        number, told = first_words(process)
        assert (number, told) == (process.pid, f"{tmp_path} a b False False an argument")


def test_it_ends_with_the_jvm_and_those_that_run_stay(planners: Planners, tmp_path: Path) -> None:
    with asked(planners.address, tmp_path) as process:
        number, _ = first_words(process)
        planners.end_jvm()
        assert planners.process.wait(TIMEOUT_S) == 0
        # They have a connection to the JVM, and end with that.
        assert psutil.pid_exists(number)


@pytest.mark.parametrize("length", [0, MAX_REQUEST_BYTES + 1])
def test_a_request_that_is_none_hurts_nobody_else(
    planners: Planners, tmp_path: Path, length: int
) -> None:
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.settimeout(TIMEOUT_S)
        hostile.connect(f"\0{planners.name}")
        hostile.sendall(LENGTH.pack(length))
        assert hostile.recv(1) == b""
    with asked(planners.address, tmp_path) as process:
        assert psutil.Process(first_words(process)[0]).ppid() == planners.process.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try it as another user")
def test_another_user_gets_no_process(planners: Planners) -> None:
    program = (
        "import os; from onceflow.runtime.spark.planner_start import is_done_elsewhere;"
        "os.setuid(65534);"
        f"print(is_done_elsewhere('{planners.address}', ['-m', 'keyword']))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], cwd="/", check=True, capture_output=True, text=True
    )
    assert said.stdout == "False\n"


def test_without_the_secret_nobody_gets_a_process(planners: Planners) -> None:
    """Such as another container, of the same user, that shares the network."""
    assert is_done_elsewhere(planners.address, ["-m", "keyword"])
    assert not is_done_elsewhere(f"{planners.name} {'0' * 32}", ["-m", "keyword"])


def test_spark_s_own_program_is_asked_for_here(tmp_path: Path) -> None:
    make_spark_home(tmp_path)
    address = f"test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(TIMEOUT_S)
        listener.bind(f"\0{address}")
        listener.listen()
        with subprocess.Popen(
            [tmp_path / WORKER_PYTHON, "-m", RUNNER],
            env={**os.environ, PLANNERS_ADDRESS: address},
            stderr=subprocess.DEVNULL,
        ) as process:
            connection, _ = listener.accept()
            with connection:
                (length,) = LENGTH.unpack(connection.recv(LENGTH.size))
                request = json.loads(connection.recv(length, socket.MSG_WAITALL))
            process.kill()
    assert request["arguments"] == ["-m", RUNNER]

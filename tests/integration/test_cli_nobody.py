"""Standard error of each command when no broker listens at the address."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from onceflow.errors import DeadlineError

ADDRESS = "127.0.0.1:1"
TIMEOUT_S = 60
COMMANDS = (
    "status views",
    "why-stuck views",
    "ledger show views",
    "consume views",
    "produce views",
)
CLIENT_LOG = '{"log_level": "7", "debug": "broker"}'


def start(command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onceflow.cli", *command.split(), "--bootstrap-servers", ADDRESS],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def running() -> Iterator[Mapping[str, subprocess.Popen[str]]]:
    """Every command, all at once: each gives up after seconds."""
    with ExitStack() as at_end:
        processes: dict[str, subprocess.Popen[str]] = {}

        def add(name: str, process: subprocess.Popen[str]) -> None:
            processes[name] = at_end.enter_context(process)
            at_end.callback(process.kill)

        for command in COMMANDS:
            add(command, start(command))
        add("with the client's log", start("consume views", ONCEFLOW_CLIENT=CLIENT_LOG))
        yield processes


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_told_in_one_line(command: str, running: Mapping[str, subprocess.Popen[str]]) -> None:
    process = running[command]
    _, errors = process.communicate(timeout=TIMEOUT_S)

    (line,) = errors.splitlines()
    assert line.startswith(f"onceflow: no Kafka broker answers: {ADDRESS}; expected")
    assert process.returncode == DeadlineError.exit_code == 3


def test_the_clients_log_is_shown_on_request(
    running: Mapping[str, subprocess.Popen[str]],
) -> None:
    _, errors = running["with the client's log"].communicate(timeout=TIMEOUT_S)

    *log, last = errors.splitlines()
    assert last.startswith("onceflow: no Kafka broker answers")
    assert any("|FAIL|" in line and ADDRESS in line for line in log)

"""A Python worker whose connection Spark closes ends silently."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from onceflow.runtime.spark.home import DAEMON, make_spark_home
from onceflow.runtime.spark.launch import WORKER_PYTHON

TIMEOUT_S = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: that of a socket has 107 bytes at most."""
    with TemporaryDirectory(dir="/tmp", prefix="of-") as name:
        yield Path(name)


BEGINNING_OF_A_TASK = struct.pack("!i", 0)
"""Not all of it: the worker waits for the rest, and has an error to report when none comes."""


def end_a_worker(daemon: list[str], folder: Path, sent: bytes = b"") -> str:
    """Let a daemon fork a worker, as Spark does, and leave that; what they say of it."""
    variables = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [*daemon, "pyspark.worker"],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        (length,) = struct.unpack("!i", process.stdout.read(4))
        address = process.stdout.read(length)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(address)
            told = connection.recv(4, socket.MSG_WAITALL)
            worker = os.pidfd_open(struct.unpack("!i", told)[0])
            connection.sendall(sent)
        # It shares the daemon's stderr, and has to end by itself: the daemon would end it.
        assert select.select([worker], [], [], TIMEOUT_S)[0]
        os.close(worker)
        process.stdin.close()
        return process.stderr.read().decode()


TASKS = pytest.mark.parametrize("sent", [b"", BEGINNING_OF_A_TASK], ids=["idle", "in mid-task"])


@TASKS
def test_a_worker_that_is_no_longer_needed_ends_without_a_word(folder: Path, sent: bytes) -> None:
    assert end_a_worker([sys.executable, "-m", DAEMON], folder, sent) == ""


def test_so_does_one_whose_daemon_spark_asked_for_by_its_own_name(folder: Path) -> None:
    make_spark_home(folder)
    python = str(folder / WORKER_PYTHON)

    assert end_a_worker([python, "-m", "pyspark.daemon"], folder) == ""


@TASKS
def test_the_checks_above_would_notice(folder: Path, sent: bytes) -> None:
    daemon = [sys.executable, "-m", "pyspark.daemon"]

    assert "BrokenPipeError" in end_a_worker(daemon, folder, sent)

"""A Python worker whose connection Spark closes ends without a word."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

from onceflow.runtime import worker_daemon

TIMEOUT_S = 60


def end_an_idle_worker(module: str, folder: Path) -> str:
    """Let a daemon fork a worker, as Spark does, and leave that; what they say of it."""
    variables = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        address = daemon.stdout.read(length)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(address)
            told = connection.recv(4, socket.MSG_WAITALL)
            worker = os.pidfd_open(struct.unpack("!i", told)[0])
        # It shares the daemon's stderr, and has to end by itself: the daemon would end it.
        assert select.select([worker], [], [], TIMEOUT_S)[0]
        os.close(worker)
        daemon.stdin.close()
        return daemon.stderr.read().decode()


def test_a_worker_that_is_no_longer_needed_ends_without_a_word(tmp_path: Path) -> None:
    assert end_an_idle_worker(worker_daemon.__name__, tmp_path) == ""


def test_the_check_above_would_notice(tmp_path: Path) -> None:
    assert "BrokenPipeError" in end_an_idle_worker("pyspark.daemon", tmp_path)

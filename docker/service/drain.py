#!/usr/bin/env python3
"""Asks what runs in this container to drain, and waits until it has: for a preStop hook.

An operator's driver container has the JVM as its first process and our Python below it. SIGTERM to
the first would end both in mid-batch, so this sends it to ours before. An executor is told to
decommission itself: it ends its tasks, and hands what it has shuffled to other executors.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

DRIVER = b"onceflow-driver.py"
EXECUTOR = b"org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
LONGEST_S = 3600
"""Kubernetes ends the wait by the pod's grace period."""


def found(processes: Path) -> Iterator[tuple[int, signal.Signals]]:
    """Drivers and executors, each with the signal that it drains at.

    A driver is a process that runs our script; not the JVM, to which it is an argument as well.
    """
    for folder in processes.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and b"python" in words[0] and words[1].endswith(DRIVER):
            yield int(folder.name), signal.SIGTERM
        elif words[0].endswith(b"java") and EXECUTOR in words:
            # `spark.executor.decommission.signal`, as Spark has it by default.
            yield int(folder.name), signal.SIGPWR


def drain(number: int, by: signal.Signals, timeout_s: float = LONGEST_S) -> bool:
    """Send the signal, and wait for the end.

    Returns:
        Whether it has ended.
    """
    process = os.pidfd_open(number)
    try:
        signal.pidfd_send_signal(process, by)
        ended, _, _ = select.select([process], [], [], timeout_s)
    finally:
        os.close(process)
    return bool(ended)


def main() -> None:
    """Exit code 1 if one of them did not end."""
    running = list(found(Path("/proc")))
    sys.exit(not all(drain(number, by) for number, by in running))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Asks the service of this container to drain, and waits until it has: for a preStop hook.

An operator's container has the JVM as its first process and our Python below it. SIGTERM to the
first would end both in mid-batch, so this sends it to ours before.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

DRIVER = b"onceflow-driver.py"
LONGEST_S = 3600
"""Kubernetes ends the wait by the pod's grace period."""


def drivers(processes: Path) -> Iterator[int]:
    """Processes whose command runs our script; not the JVM, to which it is an argument as well."""
    for folder in processes.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and b"python" in words[0] and words[1].endswith(DRIVER):
            yield int(folder.name)


def drain(number: int, timeout_s: float = LONGEST_S) -> bool:
    """Send SIGTERM, and wait for the end.

    Returns:
        Whether it has ended.
    """
    process = os.pidfd_open(number)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended, _, _ = select.select([process], [], [], timeout_s)
    finally:
        os.close(process)
    return bool(ended)


def main() -> None:
    """Exit code 1 if one of them did not end."""
    found = list(drivers(Path("/proc")))
    sys.exit(not all(drain(number) for number in found))


if __name__ == "__main__":
    main()

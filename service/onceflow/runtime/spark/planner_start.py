"""Started by Spark to plan a source's batches: asks `planners.py` for a process and stands for it.

Without an answer it becomes the Python that Spark wanted. Runs as a file, without the installed
packages, so that Python starts in 20 ms.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Sequence

TIMEOUT_S = 10
"""As long as Spark waits for a process to connect."""


def is_done_elsewhere(address: str, arguments: Sequence[str]) -> bool:
    """Wait until a process that was forked for this has ended; False if there was none.

    `address` is the name of the abstract socket of `planners.py`, and its secret.
    """
    name, _, secret = address.partition(" ")
    content = {
        "secret": secret,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109  `pathlib` takes half of the time of the start
    }
    request = json.dumps(content).encode()
    with socket.socket(socket.AF_UNIX) as planners:
        planners.settimeout(TIMEOUT_S)
        try:
            planners.connect(f"\0{name}")
            socket.send_fds(planners, [struct.pack("!I", len(request))], [0, 1, 2])
            planners.sendall(request)
            if not planners.recv(1):
                return False
            planners.settimeout(None)
            planners.recv(1)
        except OSError:
            return False
    return True


if __name__ == "__main__":
    # Other users see arguments, but no variables.
    _, variable, *arguments = sys.argv
    if not is_done_elsewhere(os.environ[variable], arguments):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  no shell

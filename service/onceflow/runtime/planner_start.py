"""What Spark starts to plan a source's batches: asks `planners.py` for a process and stands for it.

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

    Args:
        address: name of the abstract socket of `planners.py`.
        arguments: of Python; `-m` and a module come first.
    """
    content = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109  `pathlib` takes half of the time of the start
    }
    request = json.dumps(content).encode()
    with socket.socket(socket.AF_UNIX) as planners:
        planners.settimeout(TIMEOUT_S)
        try:
            planners.connect(f"\0{address}")
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
    _, address, *arguments = sys.argv
    if not is_done_elsewhere(address, arguments):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  no shell

#!/usr/bin/env python3
"""Whether the service of this container is alive, for HEALTHCHECK. Kubernetes asks over HTTP.

Only `onceflow serve` answers over HTTP. Whatever else runs here is alive as long as it is there.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

DEFAULT_PORT = "9464"
TIMEOUT_S = 4.0


def is_alive(command: bytes, port: str) -> bool:
    """Whether the container's first process, started by this command, is well."""
    if b"serve" not in command.split(b"\0"):
        return True
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    port = os.environ.get("ONCEFLOW_MONITORING__PORT", DEFAULT_PORT)
    sys.exit(not is_alive(Path("/proc/1/cmdline").read_bytes(), port))

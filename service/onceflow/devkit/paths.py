"""Where the devkit keeps what can be fetched or made again: a cache outside any source tree."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "ONCEFLOW_CACHE"


def cache_dir() -> Path:
    """The cache folder: `ONCEFLOW_CACHE`, or that of the user. May not exist yet."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "onceflow"

"""Where the devkit keeps what can be fetched or made again: a cache outside any source tree."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "ONCEFLOW_CACHE"


def cache_dir() -> Path:
    """The cache folder: `ONCEFLOW_CACHE`, or the platform's own place. May not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("onceflow")

"""Processes that tests look for among those that they have started."""

from __future__ import annotations

import psutil


def command_of(process: psutil.Process) -> str:
    """Its program and arguments; empty if it has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""

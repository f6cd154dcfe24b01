"""Threads of librdkafka in this process: what is left of a client shows by them."""

from __future__ import annotations

from pathlib import Path


def client_threads() -> set[str]:
    """Ids of those that run now, of all clients together."""
    return {entry.name for entry in Path("/proc/self/task").iterdir() if _is_clients(entry)}


def _is_clients(thread: Path) -> bool:
    try:
        return (thread / "comm").read_text().startswith("rdk:")
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return False

"""Keeps the memory of a process that carries flat, whatever it has carried before."""

from __future__ import annotations

import ctypes
import gc
import os

COLLECTIONS = (50_000, 20, 50)
"""How seldom Python looks for cycles of objects. Records are none, and come by the ten thousand:
with Python's own numbers, these looks take half of the time of reading."""
LARGE_BYTES = 256 * 1024
"""Buffers from this size on are mappings of their own, which go back to the system when freed."""
_M_MMAP_THRESHOLD = -3
"""Of malloc.h."""


def keep_flat() -> None:
    """Let each batch's buffers go back to the system. For the whole process, at its start.

    glibc raises its own limit for mappings with each large buffer that is freed, up to 32 MB. The
    buffers of batches, megabytes each and freed by other threads, then leave holes in one arena
    after the other. Arrow's own allocator keeps what it had at its peaks, too; Arrow looks at the
    variable when it is imported.
    """
    gc.set_threshold(*COLLECTIONS)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc only
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)

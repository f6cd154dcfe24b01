"""Spark's Python daemon, which forks workers: less noise, and less search for garbage.

Spark ends a worker by closing its connection: an idle one when it stops and after a minute without
a task, and one in mid-task when that task is cancelled or its executor ends. PySpark's worker takes
the first for a broken task, tries to report it, and prints the traceback of the broken pipe; so it
does after the second, whose result is not read. Here it just ends.

After each task a worker looks for garbage, among all that it has imported: 75 ms of processor time
for the worker of a processor, where a small batch takes less. What is there after the first task is
left out.
"""

from __future__ import annotations

import gc
import socket
from functools import cache

from pyspark import daemon

_serve = daemon.worker


def serve(sock: socket.socket, authenticated: bool) -> int:
    """Run the next task of a worker, if one comes. Returns 0 if another may follow."""
    try:
        is_over = not sock.recv(1, socket.MSG_PEEK)
        return 1 if is_over else _served(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        # Of this connection: what a task raises has been reported, or could not be.
        return 1


def _served(sock: socket.socket, authenticated: bool) -> int:
    code = _serve(sock, authenticated)
    _leave_out_what_is_there()
    return code


@cache
def _leave_out_what_is_there() -> None:
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    daemon.worker = serve
    daemon.manager()

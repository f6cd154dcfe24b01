"""Spark's Python daemon, which forks workers, without its noise when Spark wants no more of one.

Spark ends a worker by closing its connection: an idle one when it stops and after a minute without
a task, and one in mid-task when that task is cancelled or its executor ends. PySpark's worker takes
the first for a broken task, tries to report it, and prints the traceback of the broken pipe; so it
does after the second, whose result is not read. Here it just ends.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def serve(sock: socket.socket, authenticated: bool) -> int:
    """Run the next task of a worker, if one comes. Returns 0 if another may follow."""
    try:
        is_over = not sock.recv(1, socket.MSG_PEEK)
        return 1 if is_over else _serve(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        # Of this connection: what a task raises has been reported, or could not be.
        return 1


if __name__ == "__main__":
    daemon.worker = serve
    daemon.manager()

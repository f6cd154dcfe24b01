"""Spark's Python daemon, which forks workers, without its noise when Spark has no more work.

Spark ends an idle worker by closing its connection: when it stops, and whenever there was no task
for a minute. PySpark's worker takes that for a broken task, tries to report it, and prints the
traceback of the broken pipe. Here it just ends.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def serve(sock: socket.socket, authenticated: bool) -> int:
    """Run the next task of a worker, if one comes. Returns 0 if another may follow."""
    is_over = not sock.recv(1, socket.MSG_PEEK)
    return 1 if is_over else _serve(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = serve
    daemon.manager()

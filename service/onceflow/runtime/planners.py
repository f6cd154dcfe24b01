"""Forks the processes in which Spark plans the batches of a source.

For each source of a query Spark starts a Python of its own (`PythonStreamingSourceRunner`, whatever
`spark.python.use.daemon` says), which needs half a second of processor time and 80 MB for what it
imports. On a machine that has no time for it, Spark gives it up after ten seconds. This process
imports all of that once, and shares it with the processes that it forks.

`launch.py` starts it beside Spark's JVM, with which it ends. Spark starts `planner_start.py`, which
asks here for a process and stands for it: when one of the two ends, so does the other.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
IMPORTED = (RUNNER, "onceflow.runtime.source", "onceflow.contracts.topic_pattern")
"""Connectors come in addition."""
STARTED = b"s"
"""Sent to the one that asked, by the process that was forked."""
MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""More than the kernel lets an environment have."""
REQUEST_TIMEOUT_S = 10
LENGTH = struct.Struct("!I")
_PEER = struct.Struct("3i")
"""Process, user and group: `struct ucred` of Linux."""


def serve(listener: socket.socket, jvm: int) -> None:
    """Fork a process for each request, until Spark's JVM has ended.

    Args:
        listener: to which requests come.
        jvm: a pipe whose other end the JVM holds.
    """
    # The kernel forgets those that end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener.fileno(), jvm], [], [])
        if jvm in ready:
            return
        connection, _ = listener.accept()
        with connection:
            if not _is_of_our_user(connection):
                continue
            _import_all()
            if os.fork() == 0:
                listener.close()
                os.close(jvm)
                _become_what_is_asked(connection)
                return


def _is_of_our_user(connection: socket.socket) -> bool:
    """An abstract socket has no permissions of its own: whoever shares the network may connect."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.getuid())


def _import_all() -> None:
    for name in IMPORTED:
        import_module(name)
    for point in entry_points(group="onceflow.connectors"):
        # Of one that cannot be imported, whoever needs it will tell.
        with suppress(Exception):
            point.load()


def _become_what_is_asked(connection: socket.socket) -> None:
    """Run a module as `python -m` would in the place of the one that asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(REQUEST_TIMEOUT_S)
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    length = int.from_bytes(head, "big") if len(head) == LENGTH.size else 0
    content = connection.recv(min(length, MAX_REQUEST_BYTES), socket.MSG_WAITALL)
    if not content or len(content) != length:
        # The one that asked has ended, or asks for too much. It hears of it: the connection ends.
        return
    request = json.loads(content)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in path if entry and entry not in sys.path]
    _, module, *arguments = request["arguments"]
    sys.argv = [module, *arguments]
    connection.sendall(STARTED)
    connection.settimeout(None)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    # Or `runpy` would warn of a module that is there before it runs.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(connection: socket.socket) -> None:
    connection.recv(1)
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))

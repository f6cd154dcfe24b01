"""Forks the processes in which Spark plans the batches of a source.

For each source of a query Spark starts a Python of its own (`PythonStreamingSourceRunner`, whatever
`spark.python.use.daemon` says), which needs half a second of processor time and 80 MB for what it
imports. On a machine that has no time for it, Spark gives it up after ten seconds. This process
imports all of that once, and shares it with the processes that it forks.

`launch.py` starts it next to Spark's JVM and ends with it. Spark starts `planner_start.py`, which
asks here for a process and stands for it: when one of the two ends, so does the other.
"""

from __future__ import annotations

import hmac
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
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from onceflow.runtime.spark.launch import PLANNERS_ADDRESS

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
IMPORTED = (RUNNER, "onceflow.runtime.source.data_source", "onceflow.contracts.topic_pattern")
"""The kinds of sources that are installed come in addition."""
STARTED = b"s"
"""Sent to the one that asked, by the process that was forked."""
MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""More than the kernel lets an environment have."""
REQUEST_TIMEOUT_S = 10
LENGTH = struct.Struct("!I")
_PEER = struct.Struct("3i")
"""Process, user and group: `struct ucred` of Linux."""


def serve(listener: socket.socket, jvm: int, secret: str) -> None:
    """Fork a process for each request, until the JVM has ended, which holds an end of `jvm`."""
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
                _become_what_is_asked(connection, secret)
                return


def _is_of_our_user(connection: socket.socket) -> bool:
    """An abstract socket has no permissions of its own: any process in the network may connect."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.getuid())


@cache
def _import_all() -> None:
    """At the first request: what asks Spark for nothing but an analysis needs no planner."""
    for name in IMPORTED:
        import_module(name)
    from onceflow.contracts.source_block import ENTRY_POINT_GROUP  # noqa: PLC0415  imported by now

    for point in entry_points(group=ENTRY_POINT_GROUP):
        # If one cannot be imported, the process that needs it will say so.
        with suppress(Exception):
            point.load()


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A request and its three streams; empty if the one that asks has ended or is silent."""
    connection.settimeout(REQUEST_TIMEOUT_S)
    try:
        head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        length = int.from_bytes(head, "big") if len(head) == LENGTH.size else 0
        if not 0 < length <= MAX_REQUEST_BYTES:
            return b"", []
        content = connection.recv(length, socket.MSG_WAITALL)
    except OSError:
        return b"", []
    return (content, streams) if len(content) == length else (b"", [])


def _become_what_is_asked(connection: socket.socket, secret: str) -> None:
    """Run a module as `python -m` would, instead of the process that asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, streams = _received(connection)
    if not content:
        return
    request = json.loads(content)
    if not hmac.compare_digest(request["secret"].encode(), secret.encode()):
        return
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
    _, _, told = os.environ[PLANNERS_ADDRESS].partition(" ")
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), told)

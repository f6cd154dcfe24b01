"""Stands between a client and a server, and cuts the connection at a named moment, once."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from onceflow.devkit.broker_config import HOST

BLOCK_BYTES = 65536
POLL_S = 0.1


@dataclass
class CutProxy:
    """Forwards bytes until a request holds `marks`, one after the other, on one connection.

    Args:
        marks: of requests; the last one is the moment. Empty: never.
        is_answered: whether the request still reaches the server, which answers; the answer is not
            passed on.
    """

    server_port: int
    marks: tuple[bytes, ...] = ()
    is_answered: bool = False
    cuts: int = 0
    port: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def arm(self, *marks: bytes, is_answered: bool = False) -> None:
        """Cut at the next such moment."""
        self.is_answered = is_answered
        self.marks = marks

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the end, one thread for each."""
        threads = []
        while not self._ended.is_set():
            if not select.select([listener], [], [], POLL_S)[0]:
                continue
            client, _ = listener.accept()
            thread = threading.Thread(target=self._forward, args=[client])
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()

    def end(self) -> None:
        self._ended.set()

    def _forward(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection((HOST, self.server_port))
            except OSError:
                return
            with server:
                self._pump(client, server)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        seen = 0
        while not self._ended.is_set():
            for source in select.select([client, server], [], [], POLL_S)[0]:
                data = _received(source)
                if source is client and self.marks and self.marks[seen] in data:
                    seen += 1
                if seen and seen == len(self.marks):
                    self._cut(server, data)
                    return
                if not data or not _sent(server if source is client else client, data):
                    return

    def _cut(self, server: socket.socket, data: bytes) -> None:
        self.marks = ()
        self.cuts += 1
        if self.is_answered:
            server.sendall(data)
            server.recv(BLOCK_BYTES)


def _received(source: socket.socket) -> bytes:
    """Empty at the end of a connection, however it ended."""
    try:
        return source.recv(BLOCK_BYTES)
    except OSError:
        return b""


def _sent(destination: socket.socket, data: bytes) -> bool:
    try:
        destination.sendall(data)
    except OSError:
        return False
    return True


@contextmanager
def cut_proxy(server_port: int) -> Iterator[CutProxy]:
    """A proxy that listens on a free port until the block is left."""
    with socket.create_server((HOST, 0)) as listener:
        proxy = CutProxy(server_port, port=listener.getsockname()[1])
        thread = threading.Thread(target=proxy.serve, args=[listener])
        thread.start()
        try:
            yield proxy
        finally:
            proxy.end()
            thread.join()

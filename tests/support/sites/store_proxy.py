"""Stands between a service and its object store: holds a write back, hangs up, or tells lies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

HOLD_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 60.0
_OF_ONE_CONNECTION = frozenset({"connection", "transfer-encoding", "content-length"})


class HeldWrite:
    """The first write to a path that ends so.

    Attributes:
        status: how the store answered it in the end; None before.
    """

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.status: int | None = None
        self._is_taken = threading.Lock()
        self.has_arrived = threading.Event()
        self.may_pass = threading.Event()

    def takes(self, method: str, path: str) -> bool:
        """Whether this request is the one."""
        is_it = method == "PUT" and path.partition("?")[0].endswith(self.ending)
        return is_it and self._is_taken.acquire(blocking=False)


class StoreProxy:
    """A server of its own, on a port of its own."""

    def __init__(self, port_of_store: int) -> None:
        self.held: HeldWrite | None = None
        self.is_away = False
        self.ignores_conditions = False
        self.unanswered = ""
        handler = type("Handler", (_Handler,), {"proxy": self, "port_of_store": port_of_store})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    @contextmanager
    def running(self) -> Iterator[StoreProxy]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Leave all requests unanswered inside the block."""
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False

    @contextmanager
    def losing_an_answer(self, ending: str) -> Iterator[None]:
        """Pass on the first write to a path that ends so, and hang up instead of answering."""
        self.unanswered = ending
        yield
        assert not self.unanswered, "no such write came"

    @contextmanager
    def holding(self, ending: str) -> Iterator[HeldWrite]:
        """Hold back the first write to a path that ends so; the end lets it pass."""
        self.held = HeldWrite(ending)
        try:
            yield self.held
        finally:
            self.held.may_pass.set()
            self.held = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in one packet, at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    proxy: ClassVar[StoreProxy]
    port_of_store: ClassVar[int]

    def forward(self) -> None:
        body = self.body()
        if self.proxy.is_away:
            self.close_connection = True
            return
        held = self.proxy.held
        if held is not None and held.takes(self.command, self.path):
            held.has_arrived.set()
            held.may_pass.wait(HOLD_TIMEOUT_S)
        else:
            held = None
        store = HTTPConnection("127.0.0.1", self.port_of_store, timeout=REQUEST_TIMEOUT_S)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                # It has been answered here.
                if name.lower() != "expect":
                    store.putheader(name, value)
            store.endheaders(body)
            answer = store.getresponse()
            content = answer.read()
            if held is not None:
                held.status = answer.status
            if self.is_left_unanswered():
                self.close_connection = True
                return
            status, headers = answer.status, answer.getheaders()
            if self.proxy.ignores_conditions and status == HTTPStatus.PRECONDITION_FAILED:
                status, headers, content = HTTPStatus.OK, [("ETag", '"of-another"')], b""
            self.answer(status, headers, content)
        finally:
            store.close()

    def is_left_unanswered(self) -> bool:
        ending = self.proxy.unanswered
        if not ending or self.command != "PUT" or not self.path.partition("?")[0].endswith(ending):
            return False
        self.proxy.unanswered = ""
        return True

    def body(self) -> bytes:
        """As it came, also in chunks."""
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while True:
            line = self.rfile.readline()
            size = int(line.split(b";")[0], 16)
            body += line + self.rfile.read(size + len(b"\r\n"))
            if size == 0:
                return body

    def answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        length = str(len(content))
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        try:
            self.wfile.write(content)
            self.wfile.flush()
        except OSError:
            # Who asked has given up, or died.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def log_message(self, *args: object) -> None:
        """Tests have a log already."""

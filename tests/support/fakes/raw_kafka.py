"""Both ends of Kafka's protocol by hand: a client and a broker that do not think."""

from __future__ import annotations

import queue
import socket
import socketserver
import threading
from contextlib import suppress
from typing import Any, Self

from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import EndTxnRequest

from tests.chaos.messages import framed

TIMEOUT_S = 30.0
HOST = "127.0.0.1"
OF_BROKER = 4
"""Bytes of an answer's header; the listening broker sends the request after it."""
END_TXN_VERSION = 3
CORRELATION_ID = 77


def heartbeat(mark: str) -> bytes:
    """A request that the proxy does not look into, told from others by its mark."""
    return b"\0\x0c\0\3" + CORRELATION_ID.to_bytes(4) + b"\0\2me" + mark.encode()


def end_txn(transactional_id: str) -> bytes:
    return request_frame(
        EndTxnRequest[END_TXN_VERSION](
            transactional_id=transactional_id, producer_id=1, producer_epoch=0
        )
    )


def request_frame(message: Any) -> bytes:
    """A request of kafka-python as the raw client sends it."""
    return framed(message, CORRELATION_ID, "raw-client")


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Empty if the other side ends before."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def read_frame(connection: socket.socket) -> bytes:
    """Without its size; empty at the end."""
    size = read_exactly(connection, 4)
    return read_exactly(connection, int.from_bytes(size)) if size else b""


class RawClient:
    """Sends the bytes it is given and reads what comes. One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(len(frame).to_bytes(4) + frame)

    def receive(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """The next frame; empty if the connection has ended."""
        self._socket.settimeout(timeout_s)
        try:
            return read_frame(self._socket)
        except ConnectionResetError:
            return b""

    def is_silent(self, for_s: float = 0.2) -> bool:
        """Whether nothing comes, not even an end."""
        try:
            self.receive(for_s)
        except TimeoutError:
            return True
        return False

    def ask(self, message: Any) -> Any:
        """One request and its answer, in kafka-python's classes."""
        self.send(request_frame(message))
        return message.header.get_response_class().decode(self.receive(), header=True)


class ListeningBroker:
    """Answers a look-up of brokers with itself, and every other request with what it got.

    An answer is the request's correlation id, and then the whole request.
    """

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.others: list[ListeningBroker] = []
        self.received: queue.Queue[bytes] = queue.Queue()
        self._connections: list[socket.socket] = []
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                broker._serve(self.request)

        self._server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Safe to call twice."""
        self._server.shutdown()
        self.hang_up()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._server.server_address[1]}"

    def hang_up(self) -> None:
        """End every connection."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def next_request(self) -> bytes:
        """In the order of arrival, look-ups of brokers left out."""
        return self.received.get(timeout=TIMEOUT_S)

    def _serve(self, connection: socket.socket) -> None:
        self._connections.append(connection)
        with suppress(ConnectionError):
            while frame := read_frame(connection):
                answer = self._answer(frame)
                connection.sendall(len(answer).to_bytes(4) + answer)

    def _answer(self, frame: bytes) -> bytes:
        if int.from_bytes(frame[:2]) != MetadataRequest.API_KEY:
            self.received.put(frame)
            return frame[4:8] + frame
        place = MetadataResponse.MetadataResponseBroker
        brokers = [
            place(node_id=each.node_id, host=HOST, port=each._server.server_address[1])
            for each in (self, *self.others)
        ]
        version = int.from_bytes(frame[2:4])
        answer = MetadataResponse[version](brokers=brokers, topics=[])
        return framed(answer, int.from_bytes(frame[4:8]))

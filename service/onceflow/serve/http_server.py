"""Answers HTTP in a thread of its own; bounds what clients may hold open."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from onceflow.errors import ConfigError

STOP_TIMEOUT_S = 5
"""For requests that are being answered when the service ends."""
MAX_CONNECTIONS = 100
"""Open at once. Nothing here serves crowds, and the pipelines need file descriptors as well."""
MAX_CONNECTIONS_PER_ADDRESS = 32
"""Open at once from one address: enough for an ingress and its users."""
BACKLOG = 1024
"""Connections that wait to be accepted. A client that finds no place tries again in a second."""
REQUEST_TIMEOUT_S = 10.0
"""To send a whole request, from the moment of connecting or of the answer before."""
IDLE_TIMEOUT_S = 8
"""Less, so that clients that keep connections see them closed in good order."""
TAKE_TIMEOUT_S = 10.0
"""To take an answer that does not fit into the buffers."""
TLS_TIMEOUT_S = 5.0
"""To shake hands, and to take leave."""
ACCEPT_PAUSE_S = 1.0
"""After an accept that failed, usually for want of file descriptors."""
MAX_HEADER_BYTES = 16 * 1024
PIECE_BYTES = 4 * 1024
"""In which a request is parsed; by so much a head may be too large."""


@dataclass(frozen=True)
class Endpoint:
    """Where an application answers."""

    address: str
    port: int
    """0 for any that is free."""
    certificate_file: str | Path | None = None
    """PEM; None for plain HTTP."""
    key_file: str | Path | None = None
    trusted_proxies: Sequence[str] = ()
    """Addresses and networks whose `X-Forwarded-For` and `-Proto` are believed."""


@contextmanager
def answering(app: Any, endpoint: Endpoint) -> Iterator[int]:
    """Answer requests inside the block; gives the port.

    Raises:
        ConfigError: the port is taken, or the certificate cannot be used.
    """
    with _listening(endpoint) as listener:
        server = _Server(_config(app, endpoint))
        # Not in the main thread, uvicorn leaves signals alone.
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
        )
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(2 * STOP_TIMEOUT_S)


def network_of(address: str) -> str:
    """The address as bounds count it: of IPv6 its /64, of which one client has every address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> 64 << 64))


def _listening(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    try:
        listener.bind((endpoint.address, endpoint.port))
        # Clients that connect from now on are answered as soon as the server runs.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            "cannot listen",
            subject=f"{endpoint.address} port {endpoint.port}",
            expected="an address of this machine and a free port",
            found=error.strerror or str(error),
        ) from error
    return listener


def _config(app: Any, endpoint: Endpoint) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_Connection,
        loop="asyncio",
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=bool(endpoint.trusted_proxies),
        forwarded_allow_ips=[*endpoint.trusted_proxies],
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    config.load()
    # It warns of every malformed request, so any client could fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    if endpoint.certificate_file is not None:
        config.ssl = _tls(endpoint.certificate_file, endpoint.key_file)
    return config


class _Connection(H11Protocol):
    """A connection that a silent, slow or deaf client cannot hold open.

    uvicorn's own time-out ends with the first byte of a request, and begins with the first answer.
    """

    def __init__(self, *args: Any, source: str, **named: Any) -> None:
        super().__init__(*args, **named)
        self.source = source
        self.is_lost = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether it is our turn: a whole request is here, and the client takes our answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return False
        return not self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_client(REQUEST_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        # h11 looks at the size of a head only while that is incomplete.
        for begin in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[begin : begin + PIECE_BYTES])
        if self.is_answering:
            self._expect_nothing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.is_answering:  # unless the next request is already here
            self._expect_client(REQUEST_TIMEOUT_S)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_client(TAKE_TIMEOUT_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.is_answering:
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.is_lost.set()
        super().connection_lost(exc)

    def _expect_client(self, timeout_s: float) -> None:
        self._expect_nothing()
        # Not closed: that would wait until the client has taken what was written.
        self._deadline = self.loop.call_later(timeout_s, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class _Server(uvicorn.Server):
    """Accepts within bounds, which hold before TLS.

    uvicorn answers 503 beyond its bound, to probes as well. This closes the connection that has
    been idle longest instead.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._open: dict[_Connection, asyncio.Task[None]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or []]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        for connection, task in self._open.items():
            if connection.transport is None:
                task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:  # ends with the server
            try:
                accepted, (address, *_) = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            source = network_of(address)
            if self._makes_room(source):
                connection = _Connection(
                    self.config, self.server_state, self.lifespan.state, source=source
                )
                self._open[connection] = loop.create_task(self._hold(accepted, connection))
            else:
                accepted.close()
            await asyncio.sleep(0)  # or a crowd at the door would keep all others waiting

    def _makes_room(self, source: str) -> bool:
        """Whether there is room for one more from there, if need be instead of an idle one."""
        held = Counter(connection.source for connection in self._open)
        if held[source] >= MAX_CONNECTIONS_PER_ADDRESS:
            crowd = [source]
        elif len(self._open) >= MAX_CONNECTIONS:
            crowd = [greedy for greedy, _ in held.most_common()]
        else:
            return True
        idle = [one for one in self._open if one.source in crowd and not one.is_answering]
        if not idle:
            return False
        dropped = min(idle, key=lambda one: crowd.index(one.source))  # and of these the oldest
        task = self._open.pop(dropped)
        if dropped.transport is None:
            task.cancel()  # shaking hands
        else:
            dropped.transport.abort()
        return True

    async def _hold(self, accepted: socket.socket, connection: _Connection) -> None:
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        names = ("ssl_handshake_timeout", "ssl_shutdown_timeout")
        bounds = {} if tls is None else dict.fromkeys(names, TLS_TIMEOUT_S)
        try:
            with suppress(OSError):  # the client is gone, or no client of TLS
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls, **bounds)
                await connection.is_lost.wait()
        finally:
            self._open.pop(connection, None)


def _tls(certificate: str | Path, key: str | Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "the server's certificate cannot be used",
            subject=str(certificate),
            expected="PEM files of a certificate and its private key",
            found=getattr(error, "reason", None) or str(error),
        ) from error
    return context

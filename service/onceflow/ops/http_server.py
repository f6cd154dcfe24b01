"""Runs an HTTP application beside the pipelines, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from onceflow.errors import ConfigError

STOP_TIMEOUT_S = 5
"""For requests that are being answered when the service ends."""
MAX_CONNECTIONS = 100
"""More at once are answered with 503: nothing here serves crowds."""
IDLE_TIMEOUT_S = 15
MAX_HEADER_BYTES = 16 * 1024


@dataclass(frozen=True)
class Endpoint:
    """Where an application answers.

    Args:
        address: to listen at.
        port: to listen at; 0 for any that is free.
        certificate_file: PEM; None for plain HTTP.
        key_file: its private key.
        client_ca_file: PEM; authorities of which every client needs a certificate.
    """

    address: str
    port: int
    certificate_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None


@contextmanager
def answering(app: Any, endpoint: Endpoint) -> Iterator[int]:
    """Answer requests inside the block; gives the port.

    Raises:
        ConfigError: the port is taken, or the certificate cannot be used.
    """
    with _listening(endpoint) as listener:
        server = uvicorn.Server(_config(app, endpoint))
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


def _listening(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((endpoint.address, endpoint.port))
        # Whoever asks from now on is answered as soon as the server runs.
        listener.listen(MAX_CONNECTIONS)
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
        http=_NamingProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    config.load()
    if endpoint.certificate_file is not None:
        config.ssl = _tls(endpoint)
    return config


class _NamingProtocol(H11Protocol):
    """Tells the application who a client certificate is for: `request.state.client_name`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "client_name": _common_name(transport)}


def _common_name(transport: asyncio.Transport) -> str | None:
    """Of a certificate that was verified; None if there is none."""
    certificate = transport.get_extra_info("peercert") or {}
    names = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return names[-1] if names else None


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(endpoint.certificate_file), endpoint.key_file)
        if endpoint.client_ca_file is not None:
            context.load_verify_locations(endpoint.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "the server's certificate cannot be used",
            subject=str(endpoint.certificate_file),
            expected="PEM files of a certificate and its private key",
            found=getattr(error, "reason", None) or str(error),
        ) from error
    return context

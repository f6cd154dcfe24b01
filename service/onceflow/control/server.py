"""Serves the control API and the status page of a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onceflow.contracts.observer import Report
from onceflow.control.access import Gate
from onceflow.control.api import control_app
from onceflow.control.tokens import Tokens
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serving import Service
from onceflow.settings import Control


@contextmanager
def controlled(service: Service, settings: Control, report: Report) -> Iterator[int]:
    """Take orders for a service inside the block; gives the port. Reports `audit` events.

    Raises:
        ConfigError: the tokens or the certificate cannot be used, or the port is taken.
    """
    tokens = Tokens(Path(settings.tokens_file))

    def audit(what: str, **facts: object) -> None:
        report("audit", what=what, **facts)

    app = control_app(service, Gate(tokens, service.around.clock, audit))
    endpoint = Endpoint(
        settings.address,
        settings.port,
        settings.certificate_file,
        settings.key_file,
        settings.trusted_proxies,
    )
    with answering(app, endpoint) as port:
        report("listening", what="control", address=settings.address, port=port)
        yield port

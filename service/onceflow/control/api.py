"""The control API: looks at pipelines for readers, orders for writers.

An order changes what is desired of a pipeline and returns at once; what is observed follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.params import Depends as Dependency
from fastapi.responses import JSONResponse

from onceflow.contracts.observer import Report
from onceflow.control.access import Gate, Guard, needs
from onceflow.control.page import add_page
from onceflow.control.tokens import Role, Tokens
from onceflow.control.views import Json, Name, Views, status_fields
from onceflow.errors import ConfigError, OnceflowError
from onceflow.ports import Control
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serving import Service

REPLAY_TIMEOUT_S = 300.0
"""What was not sent by then is sent by the next replay."""

_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "Unknown token."},
    403: {"description": "The token's role does not allow it."},
    404: {"description": "There is no such pipeline."},
    409: {"description": "The pipeline's file or state does not allow it."},
    413: {"description": "The body is too large."},
    422: {"description": "A parameter is wrong."},
    429: {"description": "Too many requests; `Retry-After` says when to try again."},
    502: {"description": "Brokers or ledger did not answer, or refused."},
}


class _AsciiJson(JSONResponse):
    """Control characters of records and errors reach a terminal as escapes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


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


def control_app(service: Service, gate: Gate) -> Guard:
    """The whole application: API and page."""
    app = FastAPI(
        title="Onceflow control",
        version=version("onceflow"),
        openapi_url=None,
        default_response_class=_AsciiJson,
        # Redirects repeat the Host that the client gave.
        redirect_slashes=False,
    )

    def must_be_here(name: Name) -> None:
        if name not in service.entries:
            raise HTTPException(404, f"no pipeline {name!r} here")

    views, here = Views(service), Depends(must_be_here)
    may_read, may_write = Depends(needs(gate, Role.READ)), Depends(needs(gate, Role.WRITE))
    app.include_router(_reading(views, here), dependencies=[may_read])
    app.include_router(_writing(service, views, here), dependencies=[may_write])

    @app.get("/v1/openapi.json", dependencies=[may_read])
    def openapi() -> Json:
        """This description."""
        return app.openapi()

    @app.exception_handler(OnceflowError)
    def refused(_: Request, error: OnceflowError) -> JSONResponse:
        status, faults = HTTPStatus.BAD_GATEWAY, []
        if isinstance(error, ConfigError):
            status, faults = HTTPStatus.CONFLICT, [str(fault) for fault in error.faults]
        body = {"detail": str(error), "kind": type(error).__name__, "faults": faults}
        return _AsciiJson(body, status)

    add_page(app, service, views, gate)
    return Guard(app, gate)


def _reading(views: Views, here: Dependency) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["look"], responses=_RESPONSES)
    for path, look in (
        ("", views.pipeline),
        ("/position", views.position),
        ("/history", views.history),
        ("/ledger", views.ledger),
        ("/dead-letters", views.dead_letters),
        ("/records", views.records),
        ("/state", views.state),
        ("/state/{operator}", views.state_rows),
        ("/why-stuck", views.why_stuck),
        ("/configuration", views.configuration_of),
    ):
        router.add_api_route(f"/pipelines/{{name}}{path}", look, dependencies=[here])
    router.add_api_route("/pipelines", views.pipelines)
    router.add_api_route("/configuration", views.configuration)
    return router


def _writing(service: Service, views: Views, here: Dependency) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["order"], responses=_RESPONSES)
    one = APIRouter(prefix="/pipelines/{name}", dependencies=[here])
    one.add_api_route("/validate", views.validate, methods=["POST"])

    @one.post("/start", status_code=HTTPStatus.ACCEPTED)
    def start(name: Name) -> Json:
        """Run it, with its file as it is now. Observed then: `starting`, `running`."""
        service.fleet.members[name].start()
        return status_fields(views.status(name))

    @one.post("/stop", status_code=HTTPStatus.ACCEPTED)
    def stop(name: Name) -> Json:
        """Stop it after its running batch. Observed then: `draining`, `stopped`."""
        service.fleet.members[name].stop()
        return status_fields(views.status(name))

    @one.post("/restart", status_code=HTTPStatus.ACCEPTED)
    def restart(name: Name) -> Json:
        """Stop it after its running batch, and start it with its file as it is then."""
        service.fleet.members[name].restart()
        return status_fields(views.status(name))

    @one.post("/dead-letters/replay")
    def replay(name: Name) -> Json:
        """Send its dead letters that were not sent before to their topics again, each once.

        Answers when they are sent. After an error, call it again: it continues.
        """
        deadline = service.around.clock.within(REPLAY_TIMEOUT_S)
        with views.letters(service.load(name).pipeline) as letters:
            return asdict(letters.resend(deadline))

    router.include_router(one)

    @router.post("/drain", status_code=HTTPStatus.ACCEPTED)
    def drain() -> Json:
        """Drain every pipeline and end the process, as SIGTERM does."""
        service.fleet.request_drain()
        return {"draining": [*service.entries]}

    return router

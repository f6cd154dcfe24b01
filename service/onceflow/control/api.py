"""The control API: looks for readers, orders for writers.

An order changes what is desired of a file's run and returns at once; what is observed follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
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

_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "Unknown token."},
    403: {"description": "The token's role does not allow it."},
    404: {"description": "Nothing of this name is here."},
    409: {"description": "The file or the state does not allow it."},
    413: {"description": "The body is too large."},
    422: {"description": "A parameter is wrong."},
    429: {"description": "Too many requests; `Retry-After` says when to try again."},
    502: {"description": "Brokers, ledger or target did not answer, or refused."},
}


class _AsciiJson(JSONResponse):
    """Control characters of records and errors reach a terminal as escapes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


@contextmanager
def controlled(views: Views, settings: Control, report: Report) -> Iterator[int]:
    """Take orders for a service inside the block; gives the port. Reports `audit` events.

    Raises:
        ConfigError: the tokens or the certificate cannot be used, or the port is taken.
    """
    tokens = Tokens(Path(settings.tokens_file))

    def audit(what: str, **facts: object) -> None:
        report("audit", what=what, **facts)

    app = control_app(views, Gate(tokens, views.service.clock, audit))
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


def control_app(views: Views, gate: Gate) -> Guard:
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
        if name not in views.service.fleet.members:
            raise HTTPException(404, f"no {views.kind} {name!r} here")

    here = Depends(must_be_here)
    may_read, may_write = Depends(needs(gate, Role.READ)), Depends(needs(gate, Role.WRITE))
    app.include_router(_reading(views, here), dependencies=[may_read])
    app.include_router(_writing(views, here), dependencies=[may_write])

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

    add_page(app, views, gate)
    return Guard(app, gate)


def _reading(views: Views, here: Dependency) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["look"], responses=_RESPONSES)
    looks = {
        "": views.one,
        "/history": views.history,
        "/why-stuck": views.why_stuck,
        "/configuration": views.configuration_of,
        **views.looks,
    }
    for path, look in looks.items():
        router.add_api_route(f"/{views.kind.plural}/{{name}}{path}", look, dependencies=[here])
    router.add_api_route(f"/{views.kind.plural}", views.all)
    router.add_api_route("/configuration", views.configuration)
    return router


def _writing(views: Views, here: Dependency) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["order"], responses=_RESPONSES)
    one = APIRouter(prefix=f"/{views.kind.plural}/{{name}}", dependencies=[here])
    fleet = views.service.fleet
    for path, order in {"/validate": views.validate, **views.orders}.items():
        one.add_api_route(path, order, methods=["POST"])

    @one.post("/start", status_code=HTTPStatus.ACCEPTED)
    def start(name: Name) -> Json:
        """Run it, with its file as it is now. Observed then: `starting`, `running`."""
        fleet.members[name].start()
        return status_fields(views.status(name))

    @one.post("/stop", status_code=HTTPStatus.ACCEPTED)
    def stop(name: Name) -> Json:
        """Stop it after what is under way. Observed then: `draining`, `stopped`."""
        fleet.members[name].stop()
        return status_fields(views.status(name))

    @one.post("/restart", status_code=HTTPStatus.ACCEPTED)
    def restart(name: Name) -> Json:
        """Stop it after what is under way, and start it with its file as it is then."""
        fleet.members[name].restart()
        return status_fields(views.status(name))

    router.include_router(one)

    @router.post("/drain", status_code=HTTPStatus.ACCEPTED)
    def drain() -> Json:
        """Drain everything and end the process, as SIGTERM does."""
        fleet.request_drain()
        return {"draining": [*fleet.members]}

    return router

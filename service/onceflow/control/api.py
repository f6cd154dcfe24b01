"""The control API: looks at pipelines for readers, orders for writers.

An order changes what is desired of a pipeline and returns at once; what is observed follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse

from onceflow.control.access import Gate, Guard, needs
from onceflow.control.page import add_page
from onceflow.control.tokens import Role
from onceflow.control.views import Side, Views, status_fields
from onceflow.errors import ConfigError, OnceflowError
from onceflow.serve.fleet import Member
from onceflow.serving import Service

MAX_ENTRIES = 1_000
REPLAY_TIMEOUT_S = 300.0
"""What was not sent by then is sent by the next replay."""

Name = Annotated[str, Path(description="Name of the pipeline.", max_length=200)]
Json = Mapping[str, Any]
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


def control_app(service: Service, gate: Gate) -> Guard:
    """The whole application: API and page.

    Args:
        service: to control.
        gate: lets callers in and keeps the audit log.
    """
    app = FastAPI(
        title="Onceflow control",
        version=version("onceflow"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        default_response_class=_AsciiJson,
        # Redirects repeat the Host that the client gave.
        redirect_slashes=False,
    )
    views = Views(service)
    app.include_router(_reading(service, views), dependencies=[Depends(needs(gate, Role.READ))])
    app.include_router(_writing(service, views), dependencies=[Depends(needs(gate, Role.WRITE))])

    @app.get("/v1/openapi.json", dependencies=[Depends(needs(gate, Role.READ))])
    def openapi() -> Json:
        """This description."""
        return app.openapi()

    @app.exception_handler(OnceflowError)
    def refused(_: Request, error: OnceflowError) -> JSONResponse:
        is_ours = isinstance(error, ConfigError)
        status = HTTPStatus.CONFLICT if is_ours else HTTPStatus.BAD_GATEWAY
        faults = [str(fault) for fault in error.faults] if isinstance(error, ConfigError) else []
        body = {"detail": str(error), "kind": type(error).__name__, "faults": faults}
        return _AsciiJson(body, status)

    add_page(app, service, views, gate)
    return Guard(app, gate)


def _reading(service: Service, views: Views) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["look"], responses=_RESPONSES)
    here = Depends(_is_here(service))
    router.include_router(_reading_pipelines(views), prefix="/pipelines", dependencies=[here])

    @router.get("/pipelines")
    def pipelines() -> Sequence[Json]:
        """Every pipeline: desired and observed state."""
        return views.pipelines()

    @router.get("/configuration")
    def configuration() -> Sequence[Json]:
        """Every setting of the process, and where it comes from. No secrets."""
        return views.configuration()

    return router


def _reading_pipelines(views: Views) -> APIRouter:
    router = APIRouter()

    @router.get("/{name}")
    def pipeline(name: Name) -> Json:
        """State, owner, position, lag, event watermark and who holds it, account."""
        return views.pipeline(name)

    @router.get("/{name}/position")
    def position(name: Name) -> Json:
        """The newest entry of its ledger."""
        return views.position(name)

    @router.get("/{name}/history")
    def history(name: Name) -> Json:
        """Rates, lag, times and state of the last hour, and what happened; ends with the process.

        Columns of intervals, oldest first; null is unknown.
        """
        return views.history(name)

    @router.get("/{name}/ledger")
    def ledger(
        name: Name, last: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 20
    ) -> Sequence[Json]:
        """The newest entries of its ledger, oldest first."""
        return views.ledger(name, last)

    @router.get("/{name}/dead-letters")
    def dead_letters(
        name: Name,
        reason: Annotated[str, Query(max_length=100)] = "",
        most: Annotated[int, Query(alias="max", ge=1, le=MAX_ENTRIES)] = 100,
    ) -> Sequence[Json]:
        """Rejected records, oldest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        return views.dead_letters(name, reason, most)

    @router.get("/{name}/records")
    def records(name: Name, side: Side = Side.OUTPUT) -> Sequence[Json]:
        """The newest records of its input or output, newest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        return views.newest_records(name, side)

    @router.get("/{name}/why-stuck")
    def why_stuck(name: Name) -> Json:
        """Causes that hold it up, the most serious first; takes two seconds."""
        return views.why_stuck(name)

    @router.get("/{name}/configuration")
    def configuration_of(name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from."""
        return views.configuration_of(name)

    return router


def _writing(service: Service, views: Views) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["order"], responses=_RESPONSES)
    here = [Depends(_is_here(service))]

    @router.post("/pipelines/{name}/validate", dependencies=here)
    def validate(name: Name) -> Json:
        """Whether its file as it is now could be started, and every fault in it."""
        return views.validate(name)

    @router.post("/pipelines/{name}/start", dependencies=here, status_code=HTTPStatus.ACCEPTED)
    def start(name: Name) -> Json:
        """Run it, with its file as it is now. Observed then: `starting`, `running`."""
        return ordered(name, Member.start)

    @router.post("/pipelines/{name}/stop", dependencies=here, status_code=HTTPStatus.ACCEPTED)
    def stop(name: Name) -> Json:
        """Stop it after its running batch. Observed then: `draining`, `stopped`."""
        return ordered(name, Member.stop)

    @router.post("/pipelines/{name}/restart", dependencies=here, status_code=HTTPStatus.ACCEPTED)
    def restart(name: Name) -> Json:
        """Stop it after its running batch, and start it with its file as it is then."""
        return ordered(name, Member.restart)

    @router.post("/pipelines/{name}/dead-letters/replay", dependencies=here)
    def replay(name: Name) -> Json:
        """Send its dead letters that were not sent before to their topics again, each once.

        Answers when they are sent. After an error, call it again: it continues.
        """
        deadline = service.around.clock.within(REPLAY_TIMEOUT_S)
        with views.letters(service.load(name).pipeline) as letters:
            return asdict(letters.resend(deadline))

    @router.post("/drain", status_code=HTTPStatus.ACCEPTED)
    def drain() -> Json:
        """Drain every pipeline and end the process, as SIGTERM does."""
        service.fleet.request_drain()
        return {"draining": [*service.entries]}

    def ordered(name: str, order: Callable[[Member], None]) -> Json:
        member = service.fleet.members[name]
        order(member)
        return status_fields(member.status())

    return router


def _is_here(service: Service) -> Callable[[str], None]:
    """A dependency: the pipeline of the path.

    Raises:
        HTTPException: 404, it is not of this service.
    """

    def check(name: Name) -> None:
        if name not in service.entries:
            raise HTTPException(404, f"no pipeline {name!r} here")

    return check

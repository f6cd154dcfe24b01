"""The control API: looks at pipelines for whoever may read, orders for whoever may write.

An order returns when it is true, or, after `wait` seconds, as an operation to ask about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from onceflow.control.access import RETRY_S, Gate, Guard, needs
from onceflow.control.operations import Operation, Operations, Outcome
from onceflow.control.page import add_page
from onceflow.control.replay import replay_letters
from onceflow.control.tokens import Role
from onceflow.control.views import Side, Views
from onceflow.errors import ConfigError, DeadlineError, OnceflowError
from onceflow.ops.fleet import Member, Observed
from onceflow.serving import Service

MAX_WAIT_S = 60.0
DEFAULT_WAIT_S = 30.0
ORDER_TIMEOUT_S = 300.0
"""For an order to become true: a drain waits for its batch, a start for Spark."""
MAX_ENTRIES = 1_000

Name = Annotated[str, Path(description="Name of the pipeline.", max_length=200)]
Wait = Annotated[
    float,
    Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait until the order is true."),
]
Json = Mapping[str, Any]
_ORDERS: Mapping[str, tuple[Callable[[Member], None], Sequence[Observed]]] = {
    "start": (Member.start, (Observed.RUNNING, Observed.STANDBY)),
    "stop": (Member.stop, (Observed.STOPPED,)),
    "restart": (Member.restart, (Observed.RUNNING, Observed.STANDBY)),
}
"""Order -> what it does, and what is seen when it is true."""
_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "Not true yet; `Location` is to be asked."},
    401: {"description": "Nobody that is known here."},
    403: {"description": "Known, but may not do this."},
    404: {"description": "There is no such pipeline or operation."},
    409: {"description": "The pipeline's file or state does not allow it."},
    413: {"description": "A body that is too large."},
    422: {"description": "A parameter that is not understood."},
    429: {"description": "Too much at once or in a row; `Retry-After` says when to come back."},
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
    operations = Operations(service.around.clock)
    reading = _reading(service, views, operations)
    writing = _writing(service, views, operations)
    app.include_router(reading, dependencies=[Depends(needs(gate, Role.READ))])
    app.include_router(writing, dependencies=[Depends(needs(gate, Role.WRITE))])

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


def _reading(service: Service, views: Views, operations: Operations) -> APIRouter:
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

    @router.get("/operations/{operation_id}")
    def operation(operation_id: Annotated[str, Path(max_length=64)]) -> Json:
        """How far an order is."""
        found = operations.find(operation_id)
        if found is None:
            raise HTTPException(404, "no such operation, or it is long over")
        return _operation_fields(found)

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

        Values are told of columns that the setting `control.shown_columns` names.
        """
        return views.dead_letters(name, reason, most)

    @router.get("/{name}/records")
    def records(name: Name, side: Side = Side.OUTPUT) -> Sequence[Json]:
        """The newest records of its input or output, newest first.

        Values are told of columns that the setting `control.shown_columns` names.
        """
        return views.newest_records(name, side)

    @router.get("/{name}/why-stuck")
    def why_stuck(name: Name) -> Json:
        """What holds it up, gravest first; looks for two seconds."""
        return views.why_stuck(name)

    @router.get("/{name}/configuration")
    def configuration_of(name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from."""
        return views.configuration_of(name)

    return router


def _writing(service: Service, views: Views, operations: Operations) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["order"], responses=_RESPONSES)

    here = [Depends(_is_here(service))]

    @router.post("/pipelines/{name}/validate", dependencies=here)
    def validate(name: Name) -> Json:
        """Whether its file as it is now could be started, and every fault in it."""
        return views.validate(name)

    @router.post("/pipelines/{name}/start", dependencies=here)
    def start(name: Name, response: Response, wait: Wait = DEFAULT_WAIT_S) -> Json:
        """Let it run, with its file as it is now. True when it runs or stands by."""
        return order("start", name, response, wait)

    @router.post("/pipelines/{name}/stop", dependencies=here)
    def stop(name: Name, response: Response, wait: Wait = DEFAULT_WAIT_S) -> Json:
        """Drain and stop it: the running batch commits everywhere first."""
        return order("stop", name, response, wait)

    @router.post("/pipelines/{name}/restart", dependencies=here)
    def restart(name: Name, response: Response, wait: Wait = DEFAULT_WAIT_S) -> Json:
        """Drain it, and start it with its file as it is then."""
        return order("restart", name, response, wait)

    @router.post("/pipelines/{name}/dead-letters/replay", dependencies=here)
    def replay(name: Name, response: Response, wait: Wait = DEFAULT_WAIT_S) -> Json:
        """Send its dead letters that were not sent before to their topics again, each once."""
        return carried_out("replay", name, response, wait, lambda: replay_letters(service, name))

    @router.post("/drain")
    def drain() -> Json:
        """Drain every pipeline and end the process, as SIGTERM does."""
        service.fleet.request_drain()
        return {"draining": [*service.entries]}

    def order(action: str, name: str, response: Response, wait_s: float) -> Json:
        member = service.fleet.members[name]
        work = partial(_carry_out, member, action)
        return carried_out(action, name, response, wait_s, work)

    def carried_out(
        action: str, name: str, response: Response, wait_s: float, work: Callable[[], str]
    ) -> Json:
        operation = operations.begin(action, name, work)
        if operation is None:
            detail = "too many orders are being carried out"
            raise HTTPException(429, detail, {"Retry-After": str(RETRY_S)})
        operation.ended.wait(wait_s)
        if operation.outcome is Outcome.RUNNING:
            response.status_code = HTTPStatus.ACCEPTED
            response.headers["Location"] = f"/v1/operations/{operation.operation_id}"
        return _operation_fields(operation)

    return router


def _carry_out(member: Member, action: str) -> str:
    give, wanted = _ORDERS[action]
    seen = member.follow(give, wanted, ORDER_TIMEOUT_S)
    if seen in wanted:
        return str(seen)
    error = member.status().error
    if isinstance(error, OnceflowError):
        raise error
    raise DeadlineError(
        f"{action} is not true yet",
        subject=member.name,
        expected=" or ".join(wanted),
        found=str(error or seen),
    )


def _is_here(service: Service) -> Callable[[str], None]:
    """A dependency: the pipeline of the path.

    Raises:
        HTTPException: 404, it is not of this service.
    """

    def check(name: Name) -> None:
        if name not in service.entries:
            raise HTTPException(404, f"no pipeline {name!r} here")

    return check


def _operation_fields(operation: Operation) -> Json:
    return {
        "id": operation.operation_id,
        "action": operation.action,
        "pipeline": operation.pipeline,
        "began_ms": operation.began_ms,
        "outcome": operation.outcome,
        "detail": operation.detail,
    }

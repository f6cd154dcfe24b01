"""What a service tells whoever watches it over HTTP: Prometheus, and probes of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from onceflow.clock import Clock
from onceflow.ops.fleet import Desired, Observed, Status

STALLED_AFTER_S = 30.0
"""The loop over all pipelines turns twice a second; one that has not for so long hangs."""
_READY = frozenset({Observed.RUNNING, Observed.STANDBY})


@dataclass(frozen=True)
class Health:
    """Whether a service lives, and whether it does what it is there for.

    Args:
        clock: measures.
        looked_at_s: when its loop turned last, on the monotonic scale.
        statuses: of its pipelines.
        is_draining: whether it is about to end.
    """

    clock: Clock
    looked_at_s: Callable[[], float]
    statuses: Callable[[], Sequence[Status]]
    is_draining: Callable[[], bool]

    def is_alive(self) -> bool:
        """Whether its control loop turns, or it ends. Silent brokers are no reason to be killed."""
        return self.is_draining() or self.clock.monotonic_s() - self.looked_at_s() < STALLED_AFTER_S

    def waits_for(self) -> Sequence[Status]:
        """Pipelines that are to run and neither run nor stand by."""
        return [
            status
            for status in self.statuses()
            if status.desired is Desired.RUNNING and status.observed not in _READY
        ]

    def is_ready(self) -> bool:
        """Whether every pipeline that is to run knows its position and goes on from it."""
        return not self.is_draining() and not self.waits_for()


def monitoring_app(registry: CollectorRegistry, health: Health) -> FastAPI:
    """`/metrics`, `/livez` and `/readyz`, for anybody who can reach the port. No orders."""
    app = FastAPI(title="Onceflow monitoring", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/livez")
    def livez(response: Response) -> dict[str, Any]:
        return _answered(response, is_well=health.is_alive())

    @app.get("/readyz")
    def readyz(response: Response) -> dict[str, Any]:
        waiting = {status.name: status.observed for status in health.waits_for()}
        answer = _answered(response, is_well=health.is_ready())
        return {**answer, "is_draining": health.is_draining(), "waits_for": waiting}

    return app


def _answered(response: Response, *, is_well: bool) -> dict[str, Any]:
    response.status_code = 200 if is_well else 503
    return {"ok": is_well}

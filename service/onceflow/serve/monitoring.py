"""Answers Prometheus and the probes of Kubernetes over HTTP."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from onceflow.clock import Clock
from onceflow.contracts.observer import Report
from onceflow.ports import Monitoring
from onceflow.serve.ending import end_within
from onceflow.serve.fleet import Desired, Fleet, Observed, Status
from onceflow.serve.http_server import Endpoint, answering

STALLED_AFTER_S = 30.0
"""The loop over all pipelines turns twice a second; one that has not for this long hangs."""
FRESH_S = 1.0
"""Figures of this age are good enough for every scrape."""
_READY = frozenset({Observed.RUNNING, Observed.STANDBY})


@dataclass(frozen=True)
class Health:
    """Whether a service lives, and whether it does what it is there for."""

    clock: Clock
    fleet: Fleet

    def is_alive(self) -> bool:
        """Whether its loop turns, or it drains. Silent brokers do not get it killed.

        Without Spark, nothing can be done without another process.
        """
        age_s = self.clock.monotonic_s() - self.fleet.looked_at_s
        is_turning = self.fleet.is_draining() or age_s < STALLED_AFTER_S
        return is_turning and not self.fleet.has_lost_engine

    def waits_for(self) -> Sequence[Status]:
        """Pipelines that are to run and neither run nor stand by."""
        return [
            status
            for status in self.fleet.statuses()
            if status.desired is Desired.RUNNING and status.observed not in _READY
        ]


def monitoring_app(registry: CollectorRegistry, health: Health) -> FastAPI:
    """`/metrics`, `/livez` and `/readyz`, for every client that reaches the port. No orders."""
    app = FastAPI(title="Onceflow monitoring", openapi_url=None, redirect_slashes=False)
    figures = _Figures(registry, health.clock)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await figures.text(), media_type=CONTENT_TYPE_LATEST)

    # Probes wait for no thread: others may have taken all of them.
    @app.get("/livez")
    async def livez(response: Response) -> dict[str, Any]:
        response.status_code = 200 if (is_alive := health.is_alive()) else 503
        return {"ok": is_alive}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, Any]:
        waiting = {status.name: status.observed for status in health.waits_for()}
        is_draining = health.fleet.is_draining()
        is_ready = not is_draining and not waiting
        response.status_code = 200 if is_ready else 503
        return {"ok": is_ready, "is_draining": is_draining, "waits_for": waiting}

    return app


def run_monitored(
    fleet: Fleet, registry: CollectorRegistry, settings: Monitoring, clock: Clock, report: Report
) -> None:
    """Run a fleet until it has ended, and answer Prometheus and probes meanwhile.

    From the end on, the process has to end soon, even if a client hangs: see `end_within`.

    Raises:
        ConfigError: the port is taken; nothing was started.
        Exception: as `Fleet.run`.
    """
    app = monitoring_app(registry, Health(clock, fleet))
    with answering(app, Endpoint(settings.address, settings.port)) as port:
        report("listening", what="monitoring", address=settings.address, port=port)
        error: BaseException | None = None
        try:
            fleet.run()
        except BaseException as raised:
            error = raised
            raise
        finally:
            end_within(error)


@dataclass
class _Figures:
    """The registry as text, made at most once in `FRESH_S`, however many ask."""

    registry: CollectorRegistry
    clock: Clock
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _text: bytes = b""
    _stale_at_s: float = -math.inf

    async def text(self) -> bytes:
        async with self._one_at_a_time:
            now_s = self.clock.monotonic_s()
            if now_s >= self._stale_at_s:
                self._text = await asyncio.to_thread(generate_latest, self.registry)
                self._stale_at_s = now_s + FRESH_S
            return self._text

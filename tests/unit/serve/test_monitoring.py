"""Probes and Prometheus over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from onceflow.errors import ConfigError
from onceflow.serve.fleet import Desired, Fleet, Observed, Status
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serve.monitoring import FRESH_S, STALLED_AFTER_S, Health, monitoring_app
from tests.support.clock import ManualClock

HERE = "127.0.0.1"


@dataclass
class Watched(Fleet):
    """A service whose state a test sets."""

    clock: ManualClock = field(default_factory=ManualClock)
    looked_at_s: float = 0.0
    observed: Observed = Observed.RUNNING
    desired: Desired = Desired.RUNNING
    drains: bool = False
    has_lost_engine: bool = False
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def app(self) -> FastAPI:
        return monitoring_app(self.registry, Health(self.clock, self))

    def is_draining(self) -> bool:
        return self.drains

    def statuses(self) -> list[Status]:
        return [Status("views", self.desired, self.observed, 0, None)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def client(watched: Watched) -> Iterator[httpx.Client]:
    with (
        answering(watched.app(), Endpoint(HERE, 0)) as port,
        httpx.Client(base_url=f"http://{HERE}:{port}") as client,
    ):
        yield client


def test_it_lives_while_its_loop_turns(watched: Watched, client: httpx.Client) -> None:
    assert client.get("/livez").status_code == 200
    watched.clock.sleep(STALLED_AFTER_S)
    assert client.get("/livez").status_code == 503
    watched.looked_at_s = watched.clock.monotonic_s()
    assert client.get("/livez").json() == {"ok": True}
    watched.clock.sleep(STALLED_AFTER_S)
    watched.drains = True
    assert client.get("/livez").status_code == 200
    watched.has_lost_engine = True
    assert client.get("/livez").status_code == 503


@pytest.mark.parametrize("observed", [*Observed])
def test_it_is_ready_when_all_that_shall_run_do(
    watched: Watched, client: httpx.Client, observed: Observed
) -> None:
    watched.observed = observed
    is_ready = observed in {Observed.RUNNING, Observed.STANDBY}
    answer = client.get("/readyz")
    assert answer.status_code == (200 if is_ready else 503)
    assert answer.json()["waits_for"] == ({} if is_ready else {"views": observed})
    watched.desired = Desired.STOPPED
    assert client.get("/readyz").status_code == 200
    watched.drains = True
    assert client.get("/readyz").status_code == 503


def test_prometheus_gets_the_registry(watched: Watched, client: httpx.Client) -> None:
    figure = Gauge("answer", "Of everything.", registry=watched.registry)
    figure.set(42)
    answer = client.get("/metrics")
    assert "answer 42.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    figure.set(43)
    assert "answer 42.0" in client.get("/metrics").text, "made once in FRESH_S"
    watched.clock.sleep(FRESH_S)
    assert "answer 43.0" in client.get("/metrics").text


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/metrics/x"])
def test_there_is_nothing_else(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
    assert client.post("/livez").status_code == 405


def test_a_port_that_is_taken_is_named(watched: Watched) -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"cannot listen: {HERE} port {port}"),
            answering(watched.app(), Endpoint(HERE, port)),
        ):
            pass

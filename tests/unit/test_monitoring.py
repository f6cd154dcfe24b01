"""What probes and Prometheus get over HTTP."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import trustme
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry, Gauge

from onceflow.errors import ConfigError
from onceflow.ops.fleet import Desired, Observed, Status
from onceflow.ops.http_server import Endpoint, answering
from onceflow.ops.monitoring import STALLED_AFTER_S, Health, monitoring_app
from tests.support.clock import ManualClock

HERE = "127.0.0.1"


@dataclass
class Watched:
    """A service whose state a test sets."""

    clock: ManualClock = field(default_factory=ManualClock)
    looked_at_s: float = 0.0
    observed: Observed = Observed.RUNNING
    desired: Desired = Desired.RUNNING
    is_draining: bool = False
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def app(self) -> FastAPI:
        health = Health(
            self.clock, lambda: self.looked_at_s, self.statuses, lambda: self.is_draining
        )
        return monitoring_app(self.registry, health)

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
    watched.is_draining = True
    assert client.get("/livez").status_code == 200


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
    watched.is_draining = True
    assert client.get("/readyz").status_code == 503


def test_prometheus_gets_the_registry(watched: Watched, client: httpx.Client) -> None:
    Gauge("answer", "Of everything.", registry=watched.registry).set(42)
    answer = client.get("/metrics")
    assert "answer 42.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


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


@dataclass(frozen=True)
class Papers:
    """Certificates of a server and a client, by one authority."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def endpoint(self, *, asks_for_client: bool) -> Endpoint:
        server = self.authority.issue_cert(HERE)
        chain, key, ca = (self.folder / name for name in ("chain.pem", "key.pem", "ca.pem"))
        chain.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        server.private_key_pem.write_to_path(str(key))
        self.authority.cert_pem.write_to_path(str(ca))
        return Endpoint(HERE, 0, chain, key, ca if asks_for_client else None)

    def client(self, port: int, name: str | None = None) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if name is not None:
            self.authority.issue_cert(common_name=name).configure_cert(context)
        return httpx.Client(base_url=f"https://{HERE}:{port}", verify=context)


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def named_app() -> FastAPI:
    app = FastAPI()

    @app.get("/me")
    def me(request: Request) -> str | None:
        name: str | None = request.state.client_name
        return name

    return app


def test_tls(papers: Papers) -> None:
    with (
        answering(named_app(), papers.endpoint(asks_for_client=False)) as port,
        papers.client(port) as client,
    ):
        assert client.get("/me").json() is None
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{HERE}:{port}/me")


def test_client_certificates_are_asked_for_and_their_names_told(papers: Papers) -> None:
    with answering(named_app(), papers.endpoint(asks_for_client=True)) as port:
        with papers.client(port, "operator") as client:
            assert client.get("/me").json() == "operator"
        with papers.client(port) as client, pytest.raises(httpx.HTTPError):
            client.get("/me")


def test_a_certificate_that_cannot_be_used_is_refused(papers: Papers) -> None:
    endpoint = papers.endpoint(asks_for_client=False)
    assert endpoint.key_file is not None
    endpoint.key_file.write_text("no key")
    with pytest.raises(ConfigError, match="certificate cannot be used"), answering(0, endpoint):
        pass

"""Clients that hold connections open and say nothing, little, or listen to nothing.

Each is tried on the monitoring port of a service as it is, over real sockets.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import httpx
import psutil
import pytest
import trustme
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry

from onceflow.clock import SystemClock
from onceflow.errors import ConfigError
from onceflow.serve import http_server
from onceflow.serve.fleet import Fleet
from onceflow.serve.http_server import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, Endpoint
from onceflow.serve.http_server import answering as answering_at
from onceflow.serve.monitoring import Health, monitoring_app
from tests.support.eventually import eventually

HERE, ELSEWHERE, THIRD = "127.0.0.1", "127.0.0.2", "127.0.0.3"
HELD = 200
PROBE_TIMEOUT_S = 5
"""That of the chart's probes."""
LARGE = 50_000_000
"""Bytes that no buffer takes."""
HELD_MS = 300
"""In place of seconds, in tests that wait for a deadline."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    for bound in ("REQUEST_TIMEOUT_S", "TAKE_TIMEOUT_S", "TLS_TIMEOUT_S"):
        monkeypatch.setattr(http_server, bound, HELD_MS / 1000)


@pytest.fixture
def port() -> Iterator[int]:
    clock = SystemClock()
    health = Health(clock, Fleet([], lambda: None, clock))
    with answering_at(monitoring_app(CollectorRegistry(), health), Endpoint(HERE, 0)) as port:
        yield port


def connected(port: int, source: str = HERE) -> socket.socket:
    return socket.create_connection((HERE, port), PROBE_TIMEOUT_S, (source, 0))


@contextmanager
def held(port: int, source: str, *, many: int = HELD, sends: bytes = b"") -> Iterator[None]:
    """So many connections from an address, of which each sends this and waits."""
    with ExitStack() as stack:
        for _ in range(many):
            one = stack.enter_context(connected(port, source))
            one.sendall(sends)
        yield


def probe(port: int, source: str = HERE) -> int:
    """As a kubelet asks: on a connection of its own."""
    connection = HTTPConnection(HERE, port, PROBE_TIMEOUT_S, (source, 0))
    with closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status


def is_closed(one: socket.socket) -> bool:
    """Whether the server hangs up within the patience of a probe."""
    try:
        while one.recv(65536):
            pass
    except OSError as error:
        return not isinstance(error, TimeoutError)
    return True


@pytest.mark.parametrize("sends", [b"", b"G", b"GET /livez HTTP/1.1\r\nHost: a\r\n"])
@pytest.mark.parametrize("prober", [HERE, ELSEWHERE])
def test_probes_are_answered_while_connections_are_held(
    port: int, sends: bytes, prober: str
) -> None:
    with held(port, ELSEWHERE, sends=sends):
        assert [probe(port, prober) for _ in range(3)] == [200] * 3


def test_probes_are_answered_while_many_addresses_hold_connections(port: int) -> None:
    with ExitStack() as stack:
        for last in range(2, 2 + MAX_CONNECTIONS):
            stack.enter_context(held(port, f"127.0.1.{last}", many=2))
        assert [probe(port) for _ in range(3)] == [200] * 3


def test_an_address_holds_so_many_connections_and_no_more(port: int) -> None:
    with connected(port, THIRD) as other, ExitStack() as stack:
        mine = [
            stack.enter_context(connected(port, ELSEWHERE))
            for _ in range(MAX_CONNECTIONS_PER_ADDRESS + 5)
        ]
        assert all(is_closed(one) for one in mine[:5])
        for one in (mine[-1], mine[5], other):
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "sends",
    [
        b"",
        b"GET /livez HTTP/1.1\r\n",
        b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx",
        b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "one request and no other"],
)
def test_a_connection_that_waits_for_its_client_is_closed(port: int, sends: bytes) -> None:
    with connected(port) as one:
        one.sendall(sends)
        assert is_closed(one)


@pytest.mark.usefixtures("hasty")
def test_a_byte_now_and_then_does_not_keep_a_connection(port: int) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"x" * 1000
    clock, sent = SystemClock(), 0
    began_s = clock.monotonic_s()
    with connected(port) as one, suppress(ConnectionError):
        one.settimeout(HELD_MS / 1000 / 10)
        while sent < len(head) and not has_ended(one):
            one.sendall(head[sent : sent + 1])
            sent += 1
    assert 1 <= sent < 100
    assert clock.monotonic_s() - began_s < PROBE_TIMEOUT_S


def has_ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False


@contextmanager
def serving(answer: Callable[[Request], object], endpoint: Endpoint) -> Iterator[int]:
    app = FastAPI()
    app.get("/answer", response_model=None)(answer)
    with answering_at(app, endpoint) as port:
        yield port


ANSWERED: set[int] = set()
"""Ports of clients that got a large answer, or are getting it."""


def large(request: Request) -> Response:
    assert request.client is not None
    ANSWERED.add(request.client.port)
    return Response(b"x" * LARGE)


def held_open() -> set[int]:
    """Ports of clients whose connections this process, which serves them, has open."""
    found = psutil.Process().net_connections("tcp")
    return {port for one in found for port in one.raddr[1:2]}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("request_count", [1, 2], ids=["one", "pipelined"])
def test_a_client_that_takes_no_answer_is_left(request_count: int) -> None:
    asked = b"GET /answer HTTP/1.1\r\nHost: a\r\n\r\n" * request_count
    with serving(large, Endpoint(HERE, 0)) as port, connected(port) as one:
        one.sendall(asked)
        mine, taken = one.getsockname()[1], 0
        eventually(lambda: mine in ANSWERED)
        eventually(lambda: mine not in held_open())
        with suppress(ConnectionError):
            while data := one.recv(1_000_000):
                taken += len(data)
        assert taken < LARGE


@pytest.mark.usefixtures("hasty")
def test_our_own_time_is_not_the_clients() -> None:
    def late(request: Request) -> Response:
        threading.Event().wait(3 * HELD_MS / 1000)
        return Response(b"late")

    with serving(late, Endpoint(HERE, 0)) as port:
        assert httpx.get(f"http://{HERE}:{port}/answer").text == "late"


@pytest.mark.parametrize(
    "head",
    [b"X: " + b"x" * 30_000, b"\r\n".join(b"a%d: b" % number for number in range(3_000))],
    ids=["one long line", "many lines"],
)
def test_heads_are_bounded_even_if_they_come_at_once(port: int, head: bytes) -> None:
    with connected(port) as one:
        answer = b""
        with suppress(ConnectionError):  # it hangs up before it has read all of it
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n\r\n")
            answer = one.recv(100)
    assert not answer.startswith(b"HTTP/1.1 200")
    assert probe(port) == 200


def test_malformed_requests_do_not_fill_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    for sends in (
        b"nonsense\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ):
        with connected(port) as one:
            one.sendall(sends)
            assert one.recv(20).startswith(b"HTTP/1.1 ")
    assert caplog.records == []


def whence(request: Request) -> dict[str, str]:
    assert request.client is not None
    return {"address": request.client.host, "scheme": request.url.scheme}


FORWARDED = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}


@pytest.mark.parametrize(
    ("proxies", "seen"),
    [
        ((), {"address": HERE, "scheme": "http"}),
        (("192.0.2.1",), {"address": HERE, "scheme": "http"}),
        (("127.0.0.0/8",), {"address": "203.0.113.7", "scheme": "https"}),
    ],
)
def test_only_a_named_proxy_says_where_a_request_comes_from(
    proxies: tuple[str, ...], seen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with serving(whence, Endpoint(HERE, 0, trusted_proxies=proxies)) as port:
        told = httpx.get(f"http://{HERE}:{port}/answer", headers=FORWARDED).json()
    assert told == seen


@dataclass(frozen=True)
class Papers:
    """A server's certificate."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def endpoint(self) -> Endpoint:
        server = self.authority.issue_cert(HERE)
        chain, key, ca = (self.folder / name for name in ("chain.pem", "key.pem", "ca.pem"))
        chain.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        server.private_key_pem.write_to_path(str(key))
        self.authority.cert_pem.write_to_path(str(ca))
        return Endpoint(HERE, 0, chain, key)

    def ask(self, port: int) -> dict[str, str]:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        with httpx.Client(verify=context, timeout=PROBE_TIMEOUT_S) as client:
            told: dict[str, str] = client.get(f"https://{HERE}:{port}/answer").json()
            return told


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def test_tls(papers: Papers) -> None:
    with serving(whence, papers.endpoint()) as port:
        assert papers.ask(port) == {"address": HERE, "scheme": "https"}
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{HERE}:{port}/answer")


def test_handshakes_that_do_not_end_keep_nobody_out(papers: Papers) -> None:
    """Twice as many as there is room for, so some are closed while they shake hands."""
    with serving(whence, papers.endpoint()) as port, held(port, HERE):
        assert papers.ask(port)["scheme"] == "https"


@pytest.mark.usefixtures("hasty")
def test_a_handshake_has_a_deadline(papers: Papers) -> None:
    with serving(whence, papers.endpoint()) as port, connected(port) as one:
        assert is_closed(one)


def test_a_certificate_that_cannot_be_used_is_refused(papers: Papers) -> None:
    endpoint = papers.endpoint()
    assert endpoint.key_file is not None
    Path(endpoint.key_file).write_text("no key")
    with (
        pytest.raises(ConfigError, match="certificate cannot be used"),
        answering_at(FastAPI(), endpoint),
    ):
        pass

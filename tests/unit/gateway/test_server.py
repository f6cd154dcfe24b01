"""The door: every status that a client can get, by real requests over a real socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.control.tokens import Role, line_of, new_token
from onceflow.gateway.callers import Callers
from onceflow.gateway.forwarding import Forwarder
from onceflow.gateway.model import Limits, PostedTopic
from onceflow.gateway.posts import Answer, Door, KeyOf, accepted, problem
from onceflow.gateway.server import Desk, Post, Server
from tests.support.eventually import eventually

VIEWS = PostedTopic.model_validate({"schema": "page STRING NOT NULL", "writers": ["web"]})
RECORD = b'{"page": "a"}'
WEB, APP, READER = new_token(), new_token(), new_token()
JSON = {"Content-Type": "application/json"}


@dataclass
class Site:
    """A door to a room where posts are answered as the test says."""

    port: int
    desk: Desk
    loop: asyncio.AbstractEventLoop
    answer: Answer | None = field(default_factory=lambda: accepted("views", [(0, 7)]))
    posts: list[Post] = field(default_factory=list)
    is_ours: bool = True
    is_broken: bool = False
    owner: str | None = None
    answers: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def write(self, post: Post, waiter: asyncio.Future[Answer]) -> bool:
        if self.is_broken:
            raise ZeroDivisionError
        if self.is_ours:
            self.posts.append(post)
            if self.answer is not None:
                waiter.set_result(self.answer)
        return self.is_ours

    def ask(
        self,
        path: str = "/v1/views",
        body: bytes = RECORD,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        token: str = WEB,
    ) -> tuple[int, Mapping[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        given = {**JSON, **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            connection.request(method, path, body, {**given, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.headers), json.loads(response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """The first line of the answer to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as peer:
            peer.sendall(data)
            with peer.makefile("rb") as stream:
                return stream.readline()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    tokens = tmp_path / "tokens"
    roles = ((WEB, Role.WRITE, "web"), (APP, Role.WRITE, "app"), (READER, Role.READ, "reader"))
    tokens.write_text("\n".join(line_of(*each) for each in roles))
    loop, started = asyncio.new_event_loop(), threading.Event()
    limits = Limits.model_validate(
        {"body": 2_000, "records": 3, "in_flight": 5_000, "answer_within": "1 s"}
    )
    found: list[Site] = []

    async def serve() -> None:
        desk = Desk(
            {"views": Door("views", VIEWS, 3, 1_000), "any": Door("any", PostedTopic(), 3, 1_000)},
            Callers(tokens, SystemClock()),
            limits,
            lambda post, waiter: found[0].write(post, waiter),  # noqa: PLW0108  it is made below
            lambda key: found[0].owner,
            Forwarder(None, 5.0),
            lambda: "" if found[0].is_ours else "owners of slots 0",
            SystemClock(),
            lambda status, records, seconds: found[0].answers.append(status),
            lambda: {401: 2},
            lambda error: found[0].told.append(type(error).__name__),
        )
        http_server = Server(desk.handle)
        listener = await loop.create_server(http_server, "127.0.0.1", 0)
        found.append(Site(listener.sockets[0].getsockname()[1], desk, loop))
        stop = asyncio.Event()
        found[0].loop.stop_event = stop  # type: ignore[attr-defined]
        started.set()
        await stop.wait()
        listener.close()
        await desk.forwarder.close()
        await http_server.shutdown(0.1)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(10)
    yield found[0]
    loop.call_soon_threadsafe(loop.stop_event.set)  # type: ignore[attr-defined]
    thread.join(10)
    loop.close()


def test_a_post_is_handed_on_and_its_answer_back(site: Site) -> None:
    status, headers, body = site.ask(headers={"Idempotency-Key": '"k1"'})
    assert (status, headers["Content-Type"]) == (202, "application/json")
    written = [{"partition": 0, "offset": 7, "count": 1}]
    assert body == {"topic": "views", "records": 1, "written": written}
    [post] = site.posts
    assert (post.topic, post.size_bytes, post.records[0].value) == ("views", len(RECORD), RECORD)
    assert isinstance(post.key, KeyOf)
    assert site.answers == [202]
    site.ask()
    assert site.posts[1].key is None


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"token": ""}, 401, "a bearer token is needed"),
        ({"token": "wrong"}, 401, "no such token"),
        ({"token": READER}, 403, "reader may read; a post needs the role write"),
        ({"token": APP}, 403, "app may not post to views"),
        ({"path": "/v1/other"}, 404, "no such topic here"),
        ({"path": "/v1/other", "token": ""}, 401, "a bearer token is needed"),
        ({"path": "/v1/views/x"}, 404, "no such topic here"),
        ({"path": "/"}, 404, "there is nothing here but"),
        ({"method": "PUT"}, 405, "only POST"),
        ({"headers": {"Content-Type": "text/csv"}}, 415, "Content-Type: expected"),
        ({"headers": {"Content-Encoding": "gzip"}}, 415, "Content-Encoding: expected none"),
        ({"headers": {"Idempotency-Key": "a b"}}, 400, "Idempotency-Key: expected 1 to 255"),
        ({"body": b'{"page": 1}'}, 422, "record 1 does not fit views: page: expected string"),
        ({"body": b'{"page": "%s"}' % (b"x" * 1_500)}, 413, "views takes at most 1000"),
        ({"body": b"x" * 2_001}, 413, "a body of 2001 bytes; at most 2000 are allowed"),
        (
            {"body": RECORD * 4, "headers": {"Content-Type": "application/x-ndjson"}},
            422,
            "does not fit",
        ),
        (
            {
                "body": b"\n".join([RECORD] * 4),
                "headers": {"Content-Type": "application/x-ndjson"},
            },
            413,
            "4 records in one post",
        ),
    ],
)
def test_a_post_is_refused_in_one_sentence(
    site: Site, change: dict[str, Any], status: int, told: str
) -> None:
    found, headers, body = site.ask(**change)
    assert (found, headers["Content-Type"]) == (status, "application/problem+json")
    assert body["status"] == status
    assert told in body["detail"]
    assert not site.posts
    assert site.desk.in_flight_bytes == 0
    assert ("WWW-Authenticate" in headers) == (status == 401)


def test_a_chunked_body_that_is_too_large_is_refused(site: Site) -> None:
    head = f"POST /v1/any HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WEB}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    assert b" 413 " in site.raw(head.encode() + chunk * 3 + b"0\r\n\r\n")
    assert not site.posts


def test_a_body_with_two_lengths_or_two_keys_is_refused(site: Site) -> None:
    head = f"POST /v1/any HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WEB}\r\n"
    head += "Content-Type: application/json\r\nConnection: close\r\n"
    both = head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 400 " in site.raw(both.encode() + b"{}")
    keys = head + "Content-Length: 2\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n{}"
    assert b" 400 " in site.raw(keys.encode())
    assert not site.posts


def test_a_head_that_is_too_large_is_refused(site: Site) -> None:
    head = b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 10_000 + b"\r\n\r\n"
    assert b" 400 " in site.raw(head)


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(site: Site) -> None:
    head = f"POST /v1/any HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WEB}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as peer:
        peer.sendall(head.encode())
        stream = peer.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        peer.sendall(b"{}")
        assert b" 202 " in stream.readline()


def test_more_bytes_than_may_be_in_flight_are_pushed_back(site: Site) -> None:
    site.answer = None
    large = {"body": RECORD.ljust(1_900)}
    waiting = [threading.Thread(target=site.ask, kwargs=large) for _ in range(2)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(site.posts), lambda count: count == 2)
    status, headers, body = site.ask(body=RECORD.ljust(1_900))
    assert (status, headers["Retry-After"]) == (429, "1")
    assert body["detail"].startswith("too many bytes wait")
    for thread in waiting:
        thread.join(20)
    assert site.desk.in_flight_bytes == 0
    assert site.answers == [429, 503, 503]  # not answered within the limit


def test_a_full_queue_is_pushed_back(site: Site) -> None:
    site.is_ours = False
    status, headers, _ = site.ask()
    assert (status, headers["Retry-After"]) == (429, "1")


def test_a_key_of_an_unknown_owner_is_to_be_sent_again(site: Site) -> None:
    site.is_ours = False
    status, headers, _ = site.ask(headers={"Idempotency-Key": "k"})
    assert (status, headers["Retry-After"]) == (503, "1")
    assert site.ask("/readyz", method="GET")[0] == 503


def test_a_post_is_sent_on_once_and_no_further(site: Site) -> None:
    site.is_ours, site.owner = False, f"http://127.0.0.1:{site.port}"
    # We are the owner too, and know no better.
    status, _, body = site.ask(headers={"Idempotency-Key": "k"})
    assert (status, body["detail"].startswith("no instance owns")) == (503, True)
    assert site.answers == [503, 503]


def test_the_answer_of_the_owner_is_handed_back_with_its_status(site: Site) -> None:
    site.owner = f"http://127.0.0.1:{site.port}"
    moved = problem(503, "moved", 1, is_moved=True)
    site.answer = moved
    # The first is asked, and has just lost the slot; the second, as it happens, is the same.
    status, headers, body = site.ask(headers={"Idempotency-Key": "k"})
    assert (status, headers["Retry-After"], body["detail"]) == (503, "1", "moved")
    assert len(site.posts) == 2
    assert site.posts[0].key == site.posts[1].key


def test_a_post_to_a_frozen_owner_is_written_here_when_the_slot_has_come(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # it accepts, and is silent
        site.is_ours, site.owner = False, f"http://127.0.0.1:{frozen.getsockname()[1]}"
        asked: list[Any] = []
        sending = threading.Thread(
            target=lambda: asked.append(site.ask(headers={"Idempotency-Key": "k"}))
        )
        sending.start()
        with frozen.accept()[0]:
            site.is_ours, site.owner = True, None
            sending.join(20)
    assert asked[0][0] == 202
    assert len(site.posts) == 1


def test_an_owner_that_does_not_answer_is_told(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    site.is_ours, site.owner = False, f"http://127.0.0.1:{port}"
    status, headers, body = site.ask(headers={"Idempotency-Key": "k"})
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "does not answer" in body["detail"]


def test_a_bug_is_answered_and_told(site: Site) -> None:
    site.is_broken = True
    status, _, body = site.ask()
    assert (status, "a bug in Onceflow" in body["detail"]) == (500, True)
    assert site.told == ["ZeroDivisionError"]


def test_health_needs_no_token_and_ending_is_told(site: Site) -> None:
    assert site.ask("/healthz", method="GET", token="")[::2] == (200, {"ok": True})
    assert site.ask("/readyz", method="GET", token="")[0] == 200
    site.desk.is_ending = True
    assert site.ask("/readyz", method="GET", token="")[0] == 503
    assert site.ask()[0] == 503
    assert site.ask("/healthz", method="GET", token="")[0] == 200

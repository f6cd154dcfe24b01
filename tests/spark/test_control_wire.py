"""The control API under bytes that no client library sends, and paths and methods that are none."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest

from tests.support.sites.control import Callers, Site


def connected(callers: Callers) -> socket.socket:
    host, _, port = callers.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), 20)


def answers_to(callers: Callers, sent: bytes) -> bytes:
    """All that comes until the server hangs up."""
    answers = b""
    with connected(callers) as one, suppress(ConnectionResetError):
        one.sendall(sent)
        while some := one.recv(65536):
            answers += some
    return answers


SMUGGLED = b"GET /sign-in HTTP/1.1\r\nHost: x\r\n\r\n"
SIGN_IN = b"POST /sign-in HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        SIGN_IN + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        SIGN_IN + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef" + SMUGGLED,
        SIGN_IN + b"Content-Length: +5\r\n\r\nabcde" + SMUGGLED,
        SIGN_IN + b"Transfer-Encoding: xchunked\r\n\r\n" + SMUGGLED,
        SIGN_IN + b"Host: y\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nabcde" + SMUGGLED,
    ],
)
def test_nothing_is_smuggled_in_behind_a_refused_request(callers: Callers, sent: bytes) -> None:
    answers = answers_to(callers, sent)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 400")


def test_who_hangs_up_fills_no_log(callers: Callers, caplog: pytest.LogCaptureFixture) -> None:
    with connected(callers) as one:
        one.sendall(SIGN_IN + b"Content-Length: 10\r\n\r\nabc")
    assert answers_to(callers, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    "path", ["/v1/pipelines/", "//evil.example/", "/sign-in/", "/\\evil.example", "/static//x"]
)
def test_nothing_leads_elsewhere(site: Site, callers: Callers, path: str) -> None:
    asked = HTTPConnection(callers.address.removeprefix("http://"), timeout=20)
    with closing(asked):
        asked.putrequest("GET", path, skip_host=True)
        asked.putheader("Host", "evil.example")
        asked.putheader("Authorization", f"Bearer {site.reader}")
        asked.endheaders()
        answer = asked.getresponse()
        assert (answer.status, answer.getheader("location")) == (404, None)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "X"])
@pytest.mark.parametrize("path", ["/v1/pipelines", "/v1/pipelines/views/stop", "/sign-in"])
def test_other_methods_do_nothing(callers: Callers, site: Site, method: str, path: str) -> None:
    with callers.by(site.writer) as client:
        answer = client.request(method, path)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers

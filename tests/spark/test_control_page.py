"""The page's sign-in, and what it tells; how it looks and works is tested in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from onceflow.control.access import COOKIE, MAX_SESSIONS
from onceflow.control.tokens import Role, line_of, new_token
from onceflow.errors import ConfigError
from tests.support.eventually import eventually
from tests.support.fakes.unreachable import HERE
from tests.support.pipelines import pipeline_text
from tests.support.sites.control import Callers, Site, answered


@pytest.fixture
def client(callers: Callers) -> Iterator[httpx.Client]:
    with callers.by(None) as client:
        yield client


def sign_in(client: httpx.Client, token: str) -> httpx.Response:
    return client.post("/sign-in", data={"token": token})


def test_it_asks_who_is_there(client: httpx.Client) -> None:
    for path in ("/", "/pipelines/views"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert client.get("/static/../access.py").status_code == 404


def test_a_wrong_token_is_refused(client: httpx.Client) -> None:
    answer = sign_in(client, new_token())
    assert answer.status_code == 401
    assert COOKIE not in client.cookies


def test_a_session_shows_and_ends(site: Site, client: httpx.Client) -> None:
    answer = sign_in(client, site.reader)
    assert answer.status_code == 303
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert "views" in client.get("/").text
    assert client.get("/v1/pipelines").status_code == 200
    client.get("/sign-out")
    assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    ("proxies", "begins", "is_secure"),
    [((), "onceflow-session=", False), ((HERE,), "__Host-onceflow-session=", True)],
)
def test_who_is_believed_decides_on_the_cookie(
    site: Site, proxies: tuple[str, ...], begins: str, is_secure: bool
) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    with answered(site, trusted_proxies=proxies) as callers, callers.by(None) as client:
        client.headers.update(headers)
        set_cookie = sign_in(client, site.reader).headers["set-cookie"]
        assert set_cookie.startswith(begins)
        assert ("; secure" in set_cookie.lower()) is is_secure
        name, _, rest = set_cookie.partition("=")
        client.headers["cookie"] = f"{name}={rest.partition(';')[0]}"
        assert client.get("/").status_code == 200


def test_a_session_ends_with_its_token(site: Site, client: httpx.Client) -> None:
    sign_in(client, site.writer)
    assert client.get("/").status_code == 200
    lines = site.tokens.read_text()
    site.tokens.write_text(line_of(site.reader, Role.READ, "ann"))
    assert client.get("/").status_code == 303
    assert client.get("/v1/pipelines").status_code == 401
    site.tokens.write_text(line_of(site.writer, Role.READ, "bob"))
    assert "data-order" not in client.get("/pipelines/views").text, "its role is changed"
    site.tokens.write_text(line_of(new_token(), Role.WRITE, "bob"))
    assert client.get("/").status_code == 303, "the name has another token"
    site.tokens.write_text("nonsense")
    assert client.get("/").status_code == 503
    site.tokens.write_text(lines)
    assert client.get("/").status_code == 200


def test_signing_in_ends_no_sessions_of_others(site: Site, callers: Callers) -> None:
    with callers.by(None) as bob:
        sign_in(bob, site.writer)
        for _ in range(MAX_SESSIONS + 1):
            site.clock.sleep(1)
            with callers.by(None) as ann:
                assert sign_in(ann, site.reader).status_code == 303
        assert bob.get("/").status_code == 200


def test_a_session_does_not_last_for_ever(site: Site, client: httpx.Client) -> None:
    sign_in(client, site.reader)
    site.clock.sleep(8 * 3600)
    assert client.get("/").status_code == 303


def test_orders_of_a_session_repeat_what_the_page_was_given(
    site: Site, client: httpx.Client
) -> None:
    sign_in(client, site.writer)
    where = "/v1/pipelines/views/stop"
    assert client.post(where).status_code == 401
    assert client.post(where, headers={"X-CSRF-Token": "guessed"}).status_code == 401
    page = client.get("/pipelines/views").text
    csrf = page.split('name="csrf" content="')[1].split('"')[0]
    assert client.post(where, headers={"X-CSRF-Token": csrf}).status_code == 202


def test_orders_are_offered_to_those_who_may(site: Site, callers: Callers) -> None:
    for token, is_offered in ((site.reader, False), (site.writer, True)):
        with callers.by(None) as client:
            sign_in(client, token)
            assert ("data-order" in client.get("/pipelines/views").text) is is_offered


def test_what_went_wrong_is_told_once_and_is_no_markup(site: Site, client: httpx.Client) -> None:
    sign_in(client, site.writer)
    paths = ("/", "/pipelines/views")
    assert [client.get(path).text.count("no one answers") for path in paths] == [1, 1]
    site.maker.faults += [ConfigError("<script>alert(1)</script>")]
    site.member.restart()
    eventually(lambda: "alert(1)" in client.get("/").text)
    pages = [client.get(path).text for path in paths]
    assert [page.count("alert(1)") for page in pages] == [1, 1]
    assert not any("<script>alert" in page for page in pages)


def test_names_of_topics_are_shown_and_not_obeyed(site: Site, client: httpx.Client) -> None:
    text = pipeline_text().replace("topics: [clicks]", 'pattern: "a\\u202eb.*"')
    (site.folder / "views.yaml").write_text(text)
    sign_in(client, site.reader)
    page = client.get("/pipelines/views").text
    assert r"a\u202eb.*" in page
    assert "\u202e" not in page

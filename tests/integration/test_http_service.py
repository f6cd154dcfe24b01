"""A service that is asked by HTTP: what is sent, which answers count, and what follows from others.

The service is a real server, and a child process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.columns import parse_columns
from onceflow.contracts.record import Record
from onceflow.enrichment.asking import Asking, Inquiry, Round
from onceflow.errors import ConfigError, OnceflowError, OutcomeUnknownError, RetriableError
from onceflow_connectors.http.ask_block import AskBlock
from tests.support.sites.certificates import Authority
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver

COLUMNS = parse_columns("n BIGINT, word STRING")
JSON = {"Content-Type": "application/json; charset=utf-8"}
BODY = '{"serial": $number, "path": "$path"}'
GET = ("GET",)
GOOD = Rule(times=ALWAYS, methods=("GET", "POST"), headers=JSON, body=BODY)


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


class Site:
    """Asks the server one question at a time."""

    def __init__(self, server: Receiver, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.before = len(server.events())
        self.asking: Asking[Any] | None = None

    def ask(self, *words: str, **more: Any) -> tuple[Round, list[Inquiry[Any]]]:
        if self.asking is None or more:
            url = self.server.url.replace("/records", "/answers/{n}?word={word}")
            block = AskBlock.model_validate({"url": url, **more})
            service = block.service(COLUMNS, self.folder, 4, SystemClock())
            self.close()
            self.asking = Asking(service, bytes, 4, None, SystemClock())
        records = [Record("t", 0, n, 0, None, b'{"n": %d}' % n) for n in range(len(words))]
        asked = [
            self.asking.service.question(record, (n, word))
            for n, (record, word) in enumerate(zip(records, words, strict=True))
        ]
        inquiries = [Inquiry(question, n, n) for n, question in enumerate(asked)]
        return self.asking.ask(inquiries), inquiries

    def close(self) -> None:
        if self.asking is not None:
            self.asking.close()


@pytest.fixture
def site(server: Receiver, tmp_path: Path) -> Iterator[Site]:
    site = Site(server, tmp_path)
    yield site
    site.close()


def test_a_question_is_a_request_and_its_answer_is_what_was_sent(
    site: Site, server: Receiver
) -> None:
    server.obey(GOOD)
    (site.folder / "secrets").write_text("X-Api-Key: hush\n")
    result, [inquiry] = site.ask("a/b &c", headers_file="secrets", headers={"X-Team": "one"})
    assert result.failure is None
    assert inquiry.answer is not None
    seen = server.questions()[-1]
    assert seen.path == "/answers/0?word=a%2Fb%20%26c"
    assert seen.headers["x-api-key"] == "hush"
    assert seen.headers["x-team"] == "one"
    assert json.loads(inquiry.answer.text) == {"serial": seen.number, "path": seen.path}


def test_a_post_sends_the_value_as_it_came(site: Site, server: Receiver) -> None:
    server.obey(GOOD)
    _, inquiries = site.ask("a", "b", method="POST")
    assert all(each.answer for each in inquiries)
    assert sorted(each.body for each in server.requests()[-2:]) == [b'{"n": 0}', b'{"n": 1}']
    assert server.requests()[-1].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule(status=400), "400 Bad Request"),
        (Rule(headers=JSON, body_bytes=65 * 1024), "at most 65536 bytes"),
        (Rule(headers={"Content-Type": "text/html"}, body="{}"), "found text/html"),
        (Rule(status=204), "expected an answer of type application/json"),
    ],
    ids=["final", "oversized", "html", "empty"],
)
def test_an_answer_of_no_use_is_final(site: Site, server: Receiver, rule: Rule, why: str) -> None:
    server.obey(replace(rule, methods=GET), GOOD)
    result, inquiries = site.ask("a", "b")
    assert (result.failure, result.error) == (None, None)
    refused = [each.refusal for each in inquiries if each.refusal]
    assert len(refused) == 1
    assert why in refused[0]


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule(status=500), OutcomeUnknownError),
        (Rule(status=409), OutcomeUnknownError),
        # Twice: the client itself repeats a GET on a connection that was lost.
        (Rule(times=2, cut="before"), OutcomeUnknownError),
        (Rule(delay_s=5), OutcomeUnknownError),
        (Rule(status=503, headers={"Retry-After": "60"}), RetriableError),
        (Rule(status=429), RetriableError),
        (Rule(status=401), ConfigError),
        (Rule(status=404), ConfigError),
        (Rule(status=302, headers={"Location": "http://127.0.0.1:1/"}), ConfigError),
    ],
    ids=lambda value: f"{value.status}{value.cut}" if isinstance(value, Rule) else "",
)
def test_what_follows_from_other_answers(
    site: Site, server: Receiver, rule: Rule, kind: type[OnceflowError]
) -> None:
    server.obey(replace(rule, methods=GET), GOOD)
    result, [inquiry] = site.ask("a", timeout="300 ms")
    assert inquiry.is_open
    assert type(result.error or result.failure) is kind
    if rule.headers.get("Retry-After"):
        asked = len(server.questions())
        again, _ = site.ask("a")
        assert "left alone" in str(again.failure)
        assert len(server.questions()) == asked
    elif kind is not ConfigError:
        again, [inquiry] = site.ask("a")
        assert inquiry.answer is not None


def test_404_can_say_that_there_is_no_answer(site: Site, server: Receiver) -> None:
    server.obey(Rule(methods=GET, status=404), GOOD)
    result, [inquiry] = site.ask("a", final=[400, 404])
    assert result.error is None
    assert inquiry.refusal == "404 Not Found"


def test_a_service_that_is_down_is_told_from_one_that_is_well(site: Site, server: Receiver) -> None:
    server.obey(GOOD)
    site.ask("a", timeout="2 seconds")
    assert site.asking is not None
    site.asking.probe()
    assert server.probes()[-1].method == "OPTIONS"
    assert server.probes()[-1].path == "/answers/"
    server.kill()
    with pytest.raises(RetriableError):
        site.asking.probe()
    result, [inquiry] = site.ask("a")
    assert isinstance(result.failure, RetriableError)
    server.start()
    site.asking.probe()
    _, [inquiry] = site.ask("a")
    assert inquiry.answer is not None


def test_secrets_that_were_renewed_are_used_at_once(site: Site, server: Receiver) -> None:
    server.obey(GOOD)
    file = site.folder / "secrets"
    file.write_text("X-Api-Key: old\n")
    site.ask("a", headers_file="secrets")
    file.write_text("X-Api-Key: new\n")
    site.ask("a")
    assert [each.headers["x-api-key"] for each in server.questions()[-2:]] == ["old", "new"]


def test_only_a_service_that_our_authorities_know_is_asked(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path / "ours")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Authority.in_folder(tmp_path / "strangers").certificate.read_bytes())
    with running_receiver(authority.issue("service")) as server:
        server.obey(GOOD)
        site = Site(server, tmp_path)
        try:
            result, [inquiry] = site.ask("a", ca_file="ca.pem")
            assert isinstance(result.error, ConfigError)
            assert "do not agree on TLS" in str(result.error)
            assert server.questions() == []
            ca.write_bytes(authority.certificate.read_bytes())
            _, [inquiry] = site.ask("a")
            assert inquiry.answer is not None
        finally:
            site.close()

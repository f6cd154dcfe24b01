"""The control API: who may do what, within which bounds, and that orders are carried out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from onceflow.config import leaves_of
from onceflow.control.access import (
    BURST,
    FAILURES,
    MAX_BODY_BYTES,
    MAX_CALLS,
)
from onceflow.control.showing import MASK
from onceflow.control.tokens import Role, Tokens, line_of, new_token
from onceflow.control.views import may_be_shown
from onceflow.errors import ConfigError
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.serve.fleet import Observed, Status
from onceflow.settings import Settings
from tests.support.eventually import eventually
from tests.support.fakes.runs import wait_until
from tests.support.fakes.unreachable import HERE
from tests.support.pipelines import pipeline_text
from tests.support.sites.control import SECRET, Callers, Site

READS = (
    "/v1/pipelines",
    "/v1/pipelines/views",
    "/v1/pipelines/views/position",
    "/v1/pipelines/views/history",
    "/v1/pipelines/views/records",
    "/v1/pipelines/views/ledger",
    "/v1/pipelines/views/dead-letters",
    "/v1/pipelines/views/state",
    "/v1/pipelines/views/state/aggregation",
    "/v1/pipelines/views/why-stuck",
    "/v1/pipelines/views/configuration",
    "/v1/configuration",
    "/v1/openapi.json",
)
ORDERS = ("validate", "start", "stop", "restart", "dead-letters/replay")


@pytest.mark.parametrize("path", [*READS, *(f"/v1/pipelines/views/{order}" for order in ORDERS)])
def test_nobody_comes_in_without_a_token(callers: Callers, path: str) -> None:
    method = "POST" if path.endswith(ORDERS) else "GET"
    for token in (None, new_token()):
        with callers.by(token) as client:
            answer = client.request(method, path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["Basic ", "bearer x", "Bearer"])
def test_a_token_under_another_scheme_is_none(site: Site, callers: Callers, scheme: str) -> None:
    with callers.by(None) as client:
        answer = client.get("/v1/pipelines", headers={"Authorization": f"{scheme}{site.reader}"})
    assert answer.status_code == 401


def test_who_may_read_may_not_order(site: Site, callers: Callers) -> None:
    with callers.by(site.reader) as client:
        assert client.get("/v1/pipelines").status_code == 200
        for order in ORDERS:
            assert client.post(f"/v1/pipelines/views/{order}").status_code == 403
        assert client.post("/v1/drain").status_code == 403
    assert not site.service.fleet.is_draining()
    assert {entry["what"] for entry in site.audited} == {"refused"}
    assert site.audited[0]["who"] == "ann"


def test_orders_return_at_once_and_the_pipeline_becomes_as_desired(
    site: Site, callers: Callers
) -> None:
    wait_until(site.member, Observed.RUNNING)
    with callers.by(site.writer) as client:
        for order, desired, seen in (
            ("stop", "stopped", "stopped"),
            ("start", "running", "running"),
            ("restart", "running", "running"),
        ):
            answer = client.post(f"/v1/pipelines/views/{order}")
            assert answer.status_code == 202
            assert (answer.json()["name"], answer.json()["desired"]) == ("views", desired)
            assert answer.json()["observed"] in {"draining", "starting", seen}
            row = eventually(lambda: settled(client)) or {}
            assert (row["desired"], row["observed"], row["error"]) == (desired, seen, None)
    assert len(site.maker.runs) == 3
    orders = [entry for entry in site.audited if entry["what"] == "order"]
    assert [entry["path"].rsplit("/", 1)[-1] for entry in orders] == ["stop", "start", "restart"]
    assert {entry["who"] for entry in orders} == {"bob"}


def settled(client: httpx.Client) -> dict[str, Any] | None:
    row: dict[str, Any] = client.get("/v1/pipelines/views").json()
    return row if row["observed"] in {row["desired"], "failed"} else None


def test_an_order_whose_pipeline_fails_says_why(site: Site, callers: Callers) -> None:
    wait_until(site.member, Observed.RUNNING)
    site.maker.faults.append(ConfigError("a fault in the file", expected="none"))
    with callers.by(site.writer) as client:
        assert client.post("/v1/pipelines/views/restart").status_code == 202
        row = eventually(lambda: settled(client)) or {}
    assert row["observed"] == "failed"
    assert "a fault in the file" in row["error"]["text"]


def test_what_pipelines_say_reaches_a_terminal_as_escapes(site: Site, callers: Callers) -> None:
    site.maker.faults += [ConfigError("\x1b[2J\x9b2J\u202e")]
    site.member.restart()
    with callers.by(site.reader) as client:
        answer = eventually(
            lambda: client.get("/v1/pipelines"), lambda a: "2J" in a.text, timeout_s=10
        )
        assert answer.content.isascii()
        assert b"\x1b" not in answer.content
        client.post("/sign-in", data={"token": site.reader})
        page = client.get("/").text
    assert r"\x1b[2J\x9b2J\u202e" in page
    assert "\x1b" not in page


def test_drain_ends_the_service(site: Site, callers: Callers) -> None:
    with callers.by(site.writer) as client:
        assert client.post("/v1/drain").json() == {"draining": ["views"]}
    assert site.service.fleet.is_draining()


def test_a_file_is_validated_where_it_lies(site: Site, callers: Callers) -> None:
    (site.folder / "views.yaml").write_text("apiVersion: onceflow/v1\nnme: views\n")
    with callers.by(site.writer) as client:
        answer = client.post("/v1/pipelines/views/validate").json()
    assert answer["is_valid"] is False
    assert any("Did you mean `name`?" in fault for fault in answer["faults"])


LETTERS = "dead_letter: {topic: d}\n"


@pytest.mark.parametrize(
    ("more", "asked", "status", "why"),
    [
        ("", "GET ", 200, "no one answers"),
        ("", "GET /position", 502, "no one answers"),
        ("", "GET /ledger", 502, "no one answers"),
        ("", "GET /why-stuck", 502, "no one answers"),
        ("", "GET /dead-letters", 409, "no dead-letter topic"),
        ("", "POST /dead-letters/replay", 409, "no dead-letter topic"),
        (LETTERS, "POST /dead-letters/replay", 502, "no one answers"),
    ],
)
def test_what_cannot_be_looked_at_is_told_and_not_a_crash(
    site: Site, callers: Callers, more: str, asked: str, status: int, why: str
) -> None:
    (site.folder / "views.yaml").write_text(pipeline_text() + more)
    method, _, path = asked.partition(" ")
    with callers.by(site.writer) as client:
        answer = client.request(method, f"/v1/pipelines/views{path}")
    assert (answer.status_code, why in answer.text) == (status, True)
    assert status != 502 or answer.json()["kind"] == "DeadlineError"


@pytest.mark.parametrize("name", ["other", "..", "views%2f..", "%00", "views'"])
def test_a_pipeline_that_is_not_here(site: Site, callers: Callers, name: str) -> None:
    with callers.by(site.writer) as client:
        assert client.get(f"/v1/pipelines/{name}/position").status_code == 404
        assert client.post(f"/v1/pipelines/{name}/stop").status_code == 404


def test_the_configuration_names_origins_and_no_secret(site: Site, callers: Callers) -> None:
    with callers.by(site.reader) as client:
        found = {row["name"]: row for row in client.get("/v1/configuration").json()}
        written: dict[str, Any] = {
            row["name"]: row for row in client.get("/v1/pipelines/views/configuration").json()
        }
    assert found["spark.driver_memory"]["origin"] == "ONCEFLOW_SPARK__DRIVER_MEMORY"
    assert found["sasl.username"]["origin"].endswith("onceflow.yaml, line 3")
    assert found["monitoring.port"]["origin"] == "default"
    assert found["sasl.password_file"]["value"] == str(site.folder / "password")
    assert SECRET not in str(found), "an allow list: secrets have any name"
    assert found["spark.conf.spark.hadoop.fs.s3a.secret.key"]["value"] == MASK
    assert found["spark.conf.spark.speculation"]["value"] == "false"
    assert found["client.client.rack"]["value"] == "a"
    assert written["name"]["origin"] == "views.yaml, line 2"
    assert written["restart.attempts"]["origin"] == "default"


def test_every_setting_of_ours_was_judged() -> None:
    written: dict[str, Any] = {
        "sasl": {"mechanism": "PLAIN", "username": "a", "password_file": "b"},
        "tls": {"ca_file": "a"},
        "control": {"tokens_file": "a"},
    }
    found = Settings.model_validate(written).model_dump(by_alias=True)
    names = {".".join(path) for path, _ in leaves_of(found)}
    assert len(names) > 25
    assert {name for name in names if not may_be_shown(name)} == set()
    assert not may_be_shown("sasl.password")
    assert not may_be_shown("client.ssl.keystore.password")


def test_requests_are_bounded(site: Site, callers: Callers) -> None:
    with callers.by(site.reader) as client:
        answers = [client.get("/v1/pipelines") for _ in range(BURST + 1)]
        assert [answer.status_code for answer in answers] == [200] * BURST + [429]
        site.clock.sleep(int(answers[-1].headers["retry-after"]))
        assert client.get("/v1/pipelines").status_code == 200


def test_tokens_cannot_be_tried_one_after_the_other(site: Site, callers: Callers) -> None:
    """A forged address evades no bound."""
    for number in range(FAILURES):
        with callers.by(new_token()) as client:
            forged = {"X-Forwarded-For": f"203.0.113.{number}"}
            assert client.get("/v1/pipelines", headers=forged).status_code == 401
    with callers.by(site.reader) as client:
        forged = {"X-Forwarded-For": "203.0.113.99"}
        answer = client.get("/v1/pipelines", headers=forged)
        assert answer.status_code == 429
        site.clock.sleep(int(answer.headers["retry-after"]))
        assert client.get("/v1/pipelines").status_code == 200
    told = {(entry["why"], entry["address"]) for entry in site.audited}
    assert told == {("wrong token", HERE)}


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_bodies_are_bounded(site: Site, callers: Callers, headers: dict[str, str]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * (MAX_BODY_BYTES + 1)

    content = chunks() if headers else b"x" * (MAX_BODY_BYTES + 1)
    with callers.by(site.writer) as client:
        answer = client.post("/v1/pipelines/views/stop", content=content, headers=headers)
    assert answer.status_code == 413
    assert site.maker.runs == [] or not site.maker.runs[-1].told.is_set()


def test_tokens_can_be_rotated_while_it_runs(site: Site, callers: Callers) -> None:
    fresh = new_token()
    site.tokens.write_text(line_of(fresh, Role.READ, "eve"))
    with callers.by(site.reader) as client:
        assert client.get("/v1/pipelines").status_code == 401
    with callers.by(fresh) as client:
        assert client.get("/v1/pipelines").status_code == 200
    site.tokens.write_text("read eve nonsense")
    with callers.by(fresh) as client:
        assert client.get("/v1/pipelines").status_code == 503
    assert site.audited[-1]["what"] == "tokens_unreadable"
    assert "nonsense" not in str(site.audited)


@pytest.mark.parametrize(
    "line", ["read ann", "admin ann " + "0" * 64, "read a/b " + "0" * 64, "read ann " + "g" * 64]
)
def test_a_line_that_is_no_token_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(ConfigError, match="line 2: not a token") as raised:
        Tokens(file)
    assert line.split()[1] not in str(raised.value).replace(str(file), "")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Origin": "HERE.evil.example"}, 403),
        ({"Origin": "HERE", "Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({}, 202),
    ],
)
def test_orders_from_pages_of_other_sites_are_refused(
    site: Site, callers: Callers, said: dict[str, str], status: int
) -> None:
    """Whatever lets the caller in."""
    headers = {name: text.replace("HERE", callers.address) for name, text in said.items()}
    with callers.by(site.writer) as client:
        answer = client.post("/v1/pipelines/views/stop", headers=headers)
        assert answer.status_code == status
        assert client.get("/v1/pipelines", headers=headers).status_code == 200
        signed_in = client.post("/sign-in", data={"token": site.reader}, headers=headers)
        assert signed_in.status_code == (303 if status == 202 else 403)
    assert any(entry.get("why") == "foreign site" for entry in site.audited) is (status == 403)


def test_one_name_does_not_take_all_threads(
    site: Site, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty slow calls, which used to take every thread there is."""
    began, held = threading.Semaphore(0), threading.Event()

    def slow(_: PipelineFile) -> None:
        began.release()
        assert held.wait(20)

    monkeypatch.setattr(site.service, "analyse", slow)

    def call(_: int) -> int:
        with callers.by(site.writer) as client:
            return client.post("/v1/pipelines/views/validate").status_code

    with ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(call, number) for number in range(40)]
        for _ in range(MAX_CALLS):
            assert began.acquire(timeout=20)
        eventually(lambda: sum(one.done() for one in answers) == 40 - MAX_CALLS)
        with callers.by(site.reader) as client:
            assert client.get("/v1/pipelines").status_code == 200
        held.set()
        statuses = Counter(one.result() for one in answers)
    assert statuses == {200: MAX_CALLS, 429: 40 - MAX_CALLS}
    with callers.by(site.writer) as client:
        assert client.get("/v1/pipelines").status_code == 200, "places are given back"


def test_a_fault_of_ours_is_told_without_details_and_with_headers(
    site: Site, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> list[Status]:
        raise RuntimeError(SECRET)

    with callers.by(site.reader) as client:
        answers = [client.get("/v1/pipelines")]
        monkeypatch.setattr(site.service.fleet, "statuses", breaks)
        answers.append(client.get("/v1/pipelines"))
    assert [answer.status_code for answer in answers] == [200, 500]
    assert SECRET not in answers[1].text
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers

"""The sender `http` on a real receiver: probes, secrets and TLS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from onceflow.contracts.target import Answers
from onceflow.errors import (
    ConfigError,
    OnceflowError,
    RetriableError,
)
from tests.support.eventually import eventually
from tests.support.sites.certificates import Authority
from tests.support.sites.http_bench import (
    KEYS,
    Bench,
    acknowledged,
    record,
    records,
)
from tests.support.sites.receiver import PROBLEM, Receiver, Rule, running_receiver

SECRET = "not-to-be-shown"


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    with running_receiver() as server:
        yield server


@pytest.fixture
def bench(server: Receiver, tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(server, tmp_path)) as bench:
        yield bench


def test_a_probe_carries_no_record_and_to_another_address_no_secret(bench: Bench) -> None:
    (bench.folder / "secrets").write_text(f"Authorization: {SECRET}\n")
    given = {"headers_file": "secrets", "headers": {"X-Tenant": "shop"}}
    bench.sender(**given).check()
    bench.sender(**given, health_url=f"http://127.0.0.1:{bench.receiver.port}/health").check()
    own, health = bench.probes
    assert (own.method, own.path, own.body) == ("OPTIONS", "/records", b"")
    assert (health.method, health.path, health.body) == ("GET", "/health", b"")
    assert own.headers["authorization"] == SECRET
    assert "authorization" not in health.headers
    assert {each.headers["x-tenant"] for each in bench.probes} == {"shop"}
    assert bench.requests == []


@pytest.mark.parametrize("status", [200, 204, 401, 403, 404, 405, 501])
def test_every_answer_of_a_living_receiver_counts_as_well(bench: Bench, status: int) -> None:
    bench.receiver.obey(Rule(status=status, methods=["OPTIONS"]))
    bench.sender().probe()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_receiver_that_says_so_is_not_well(bench: Bench, status: int) -> None:
    bench.receiver.obey(Rule(status=status, methods=["OPTIONS"]))
    sender = bench.sender()
    with pytest.raises(RetriableError, match=f"not well: HTTP, POST .*; found {status}"):
        sender.check()
    sender.check()


def test_a_secret_that_was_rotated_is_used_at_once(bench: Bench) -> None:
    file = bench.folder / "secrets"
    file.write_text("Authorization: old\n")
    sender = bench.sender(headers_file="secrets")
    sender.send([record(0, "a")], 1)
    file.write_text("Authorization: new\n")
    sender.send([record(1, "a")], 1)
    assert [each.headers["authorization"] for each in bench.requests] == ["old", "new"]


def test_a_secret_that_was_rotated_during_a_request_is_a_reason_to_try_again(
    bench: Bench,
) -> None:
    file = bench.folder / "secrets"
    file.write_text("Authorization: old\n")
    bench.receiver.obey(Rule(status=401, delay_s=0.5))
    sender = bench.sender(headers_file="secrets")

    def rotate() -> None:
        eventually(lambda: bench.requests)
        file.write_text("Authorization: new\n")

    thread = Thread(target=rotate)
    thread.start()
    found = sender.send(records("a"), 1)
    thread.join()
    assert "credentials have changed" in str(found.failure)
    assert sender.send(records("a"), 2) == acknowledged(0)


def problems_with(secret: str) -> Sequence[Rule]:
    body = json.dumps({"type": "about:blank", "title": f"wrong {secret}", "detail": secret})
    headers = {"Content-Type": PROBLEM, "Location": f"https://user:{secret}@host/"}
    statuses = (400, 401, 404, 302, 500)
    return [Rule(status=status, headers=headers, body=body) for status in statuses]


def outcome_text(call: Callable[[], Answers | None]) -> str:
    try:
        return str(call())
    except OnceflowError as error:
        return f"{error} {error.__cause__}"


def test_no_message_shows_a_secret(bench: Bench) -> None:
    file = bench.folder / "secrets"
    file.write_text(f"X-Api-Key: {SECRET}\n")
    url = f"{bench.receiver.url}?token={SECRET}"
    sender = bench.sender(url=url, headers_file="secrets")
    told = []
    for rule in problems_with(SECRET):
        bench.receiver.obey(rule)
        told.append(outcome_text(lambda: sender.send(records("a"), 1)))
    nowhere = bench.sender(url=f"http://127.0.0.1:1/?token={SECRET}", headers_file="secrets")
    told.append(outcome_text(lambda: nowhere.send(records("a"), 1)))
    told.append(outcome_text(nowhere.check))
    for text in (SECRET, f"Host: {SECRET}", f"X-A: {SECRET}\x07", f"X Y: {SECRET}", "ä" + SECRET):
        file.write_text(text)
        told.append(outcome_text(sender.check))
        assert "headers_file" in told[-1]
    assert len(bench.requests) == 5
    assert not any(SECRET in text for text in told)
    assert "400 Bad Request" in told[0]


def test_the_title_of_a_problem_is_shown(bench: Bench) -> None:
    body = json.dumps({"title": "No such product", "detail": "of a customer"})
    bench.receiver.obey(Rule(status=422, headers={"Content-Type": PROBLEM}, body=body))
    found = bench.sender(**KEYS).send(records("a"), 1)
    assert found.refused == {0: "422 Unprocessable Entity, No such product"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file or directory"),
        ("Authorization", "line 1; expected `Name: value`"),
        ("\nHost: a", "line 2; found the delivery writes `Host` itself"),
        ("X-Tenant: a", "a header is named twice"),
        ("A: 1\na: 2", "line 2"),
        ("A: " + "x" * 17_000, "more than 16384 bytes"),
    ],
)
def test_a_wrong_file_of_headers_is_one_sentence(
    bench: Bench, content: str | None, told: str
) -> None:
    if content is not None:
        (bench.folder / "secrets").write_text(content)
    sender = bench.sender(headers_file="secrets", headers={"x-tenant": "shop"})
    with pytest.raises(ConfigError) as refused:
        sender.check()
    assert told in str(refused.value)
    assert bench.probes == []


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.in_folder(tmp_path / "ours")


@pytest.fixture
def shy(authority: Authority, tmp_path: Path) -> Iterator[Bench]:
    """A delivery to a receiver that knows its clients by their certificates."""
    with (
        running_receiver(authority.issue("server"), authority.certificate) as receiver,
        closing(Bench(receiver, tmp_path)) as bench,
    ):
        yield bench


def files_of(authority: Authority) -> dict[str, str]:
    pair = authority.issue("client")
    return {"certificate_file": str(pair.certificate), "key_file": str(pair.key)}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tls_knows_the_receiver_and_shows_who_we_are(
    shy: Bench, authority: Authority, host: str
) -> None:
    (shy.folder / "ca.pem").write_bytes(authority.certificate.read_bytes())
    url = shy.receiver.url.replace("127.0.0.1", host)
    sender = shy.sender(url=url, ca_file="ca.pem", **files_of(authority))
    sender.check()
    assert sender.send(records("ab"), 1) == acknowledged(0, 1)
    assert sorted(shy.stored) == ["a:0", "b:1"]


def test_a_receiver_that_our_authorities_do_not_know_gets_nothing(
    shy: Bench, authority: Authority
) -> None:
    sender = shy.sender(**files_of(authority))
    with pytest.raises(ConfigError, match=r"do not agree on TLS: .* certificate"):
        sender.check()
    with pytest.raises(ConfigError, match="do not agree on TLS"):
        sender.send(records("a"), 1)
    assert (shy.requests, shy.probes) == ([], [])


def test_certificates_are_read_again_after_a_failure(shy: Bench, authority: Authority) -> None:
    ca = shy.folder / "ca.pem"
    ca.write_bytes(Authority.in_folder(shy.folder / "strangers").certificate.read_bytes())
    sender = shy.sender(ca_file="ca.pem", **files_of(authority))
    with pytest.raises(ConfigError, match="do not agree on TLS"):
        sender.send(records("a"), 1)
    ca.write_bytes(authority.certificate.read_bytes())
    assert sender.send(records("a"), 2) == acknowledged(0)


def test_a_connection_that_was_closed_between_two_calls_is_not_used_with_tls_either(
    shy: Bench, authority: Authority
) -> None:
    sender = shy.sender(ca_file=str(authority.certificate), **files_of(authority))
    for _ in range(3):
        assert sender.send(records("aabbcc"), 1).failure is None
        shy.receiver.kill()
        shy.receiver.start()


@pytest.mark.parametrize("is_strange", [True, False])
def test_without_the_right_certificate_nothing_is_acknowledged(
    shy: Bench, authority: Authority, is_strange: bool
) -> None:
    """With TLS 1.3, this looks like a receiver that is down."""
    strangers = Authority.in_folder(shy.folder / "strangers")
    sender = shy.sender(
        ca_file=str(authority.certificate), **(files_of(strangers) if is_strange else {})
    )
    with pytest.raises(OnceflowError):
        sender.check()
    assert sender.send(records("a"), 1).failure is not None
    assert shy.requests == []


def test_files_of_tls_that_cannot_be_used_are_named(bench: Bench) -> None:
    pair = Authority.in_folder(bench.folder / "a").issue("client")
    (bench.folder / "text").write_text(SECRET)
    url = bench.receiver.url.replace("http:", "https:")
    for named, file in (("ca_file", "text"), ("ca_file", "missing"), ("key_file", "text")):
        given = {"certificate_file": str(pair.certificate), "key_file": str(pair.key), named: file}
        with pytest.raises(ConfigError, match=f"cannot use `.*{named}`") as refused:
            bench.sender(url=url, **given).check()
        assert SECRET not in str(refused.value)


def test_an_address_without_tls_is_noticed(bench: Bench) -> None:
    url = bench.receiver.url.replace("http:", "https:")
    with pytest.raises(ConfigError, match=r"do not agree on TLS: .*WRONG_VERSION_NUMBER"):
        bench.sender(url=url).check()


def test_it_can_be_closed_at_any_point_and_used_again(bench: Bench) -> None:
    sender = bench.sender()
    sender.close()
    assert sender.send(records("a"), 1) == acknowledged(0)
    sender.close()
    sender.close()
    sender.probe()
    assert sender.send([], 1) == acknowledged()

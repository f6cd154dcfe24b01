"""The sender `http` on a real receiver, without a broker: what it sends, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onceflow.contracts.target import Answers
from onceflow.errors import (
    RetriableError,
)
from onceflow_connectors.http.sender import MAX_FAILURES
from tests.support.sites.http_bench import (
    KEYS,
    Bench,
    acknowledged,
    record,
    records,
    sequenced,
)
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    with running_receiver() as server:
        yield server


@pytest.fixture
def bench(server: Receiver, tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(server, tmp_path)) as bench:
        yield bench


def test_a_request_is_the_value_of_a_record_and_says_where_it_is_from(bench: Bench) -> None:
    (bench.folder / "secrets").write_text("# of today\n\nAuthorization: Bearer abc\n")
    sender = bench.sender(
        url=f"{bench.receiver.url}/%C3%A4?a=%20b",
        method="PUT",
        headers={"X-Tenant": "shop"},
        headers_file="secrets",
        key_header="X-Key",
        content_type="application/octet-stream",
        **KEYS,
    )
    foreign = record(42, "ä/1", b"\x00\xff", partition=3)
    assert sender.send([sequenced(9), foreign], 4) == acknowledged(0, 1)
    ours, other = sorted(bench.requests, key=lambda each: each.headers["onceflow-offset"])[::-1]
    assert (ours.method, ours.path, ours.body) == ("PUT", "/records/%C3%A4?a=%20b", b"k:9")
    assert ours.key == f'"{bench.name}/abcdef01/5/0/00000007/9"'
    assert other.key == f'"{bench.name}/views/3/42/1042"'
    expected = {
        "x-tenant": "shop",
        "authorization": "Bearer abc",
        "x-key": "%C3%A4%2F1",
        "content-type": "application/octet-stream",
        "onceflow-attempt": "4",
        "onceflow-topic": "views",
        "onceflow-partition": "3",
        "onceflow-offset": "42",
        "user-agent": "onceflow",
        "content-length": "2",
    }
    assert expected.items() <= other.headers.items()
    assert other.body == b"\x00\xff"


def test_the_name_and_the_form_of_the_key_may_be_others(bench: Bench) -> None:
    idempotency = {"lifetime": "1 hour", "header": "X-Request-Id", "quoted": False}
    bench.sender(idempotency=idempotency).send([record(1, "a")], 1)
    bench.sender().send([record(1, "a")], 1)
    named, unnamed = bench.requests
    assert named.headers["x-request-id"] == f"{bench.name}/views/0/1/1001"
    assert not {"x-request-id", "idempotency-key"} & unnamed.headers.keys()


@pytest.mark.parametrize(
    ("body", "expected", "content_type"),
    [
        ("ndjson", ["1\n22\n", "3\n"], "application/x-ndjson"),
        ("json_array", ["[1,22]", "[3]"], "application/json"),
    ],
)
def test_several_records_may_be_one_request(
    bench: Bench, body: str, expected: list[str], content_type: str
) -> None:
    sender = bench.sender(records_per_request=2, body=body, order="partition", **KEYS)
    sent = [record(n, "a", value) for n, value in enumerate((b"1", b"22", b"3"))]
    assert sender.send(sent, 1) == acknowledged(0, 1, 2)
    assert bench.bodies == expected
    assert [each.headers["onceflow-records"] for each in bench.requests] == ["2", "1"]
    assert {each.headers["content-type"] for each in bench.requests} == {content_type}
    assert bench.requests[0].key != bench.requests[1].key


@pytest.mark.parametrize(
    ("body", "value", "reason"),
    [
        ("ndjson", b'{\n"a": 1}', "not one line, which `body: ndjson` needs"),
        ("ndjson", b"", "not one line, which `body: ndjson` needs"),
        ("json_array", b"1],[2", "not JSON, which `body: json_array` needs"),
        ("json_array", "1".encode("utf-16"), "not JSON, which `body: json_array` needs"),
    ],
)
def test_a_value_that_would_break_its_request_is_refused_alone(
    bench: Bench, body: str, value: bytes, reason: str
) -> None:
    sender = bench.sender(records_per_request=5, body=body)
    sent = [record(0, "a", b"1"), record(1, "a", value), record(2, "a", b"2")]
    assert sender.send(sent, 1) == Answers(frozenset({0, 2}), {1: reason}, None)
    assert len(bench.stored) == 1


def test_a_tombstone_is_refused_or_sent_with_its_key(bench: Bench) -> None:
    tombstone = record(1, "a")._replace(value=None)
    found = bench.sender().send([record(0, "a"), tombstone, record(2, "a")], 1)
    assert found.refused == {1: "a record without a value (a tombstone)"}
    assert bench.stored == ["a:0", "a:2"]
    sender = bench.sender(tombstones="send", key_header="X-Key")
    assert sender.send([tombstone], 1) == acknowledged(0)
    sent = bench.requests[-1]
    assert (sent.body, sent.headers["x-key"]) == (b"", "a")
    assert sent.headers["onceflow-tombstone"] == "true"


def test_a_key_that_no_header_can_hold_is_refused(bench: Bench) -> None:
    found = bench.sender(key_header="X-Key").send([record(0, "ä" * 1000), record(1, "b")], 1)
    assert found.acknowledged == {1}
    assert "a key of more than 4096 characters" in found.refused[0]


def test_a_large_body_arrives_whole(bench: Bench) -> None:
    assert bench.sender().send([record(0, "a", b"x" * 3_000_000)], 1) == acknowledged(0)
    assert len(bench.stored[0]) == 3_000_000


def overlaps(bench: Bench) -> list[set[str]]:
    """The bodies under way at each arrival."""
    numbers = {each.number: each.body.decode() for each in bench.requests}
    under_way: set[str] = set()
    found = []
    for event in bench.receiver.events():
        if event["number"] not in numbers:
            continue
        body = numbers[event["number"]]
        if event["event"] == "arrived":
            under_way.add(body)
            found.append(set(under_way))
        elif event["event"] == "answered":
            under_way.remove(body)
    return found


@pytest.mark.parametrize("in_flight", [1, 3, 20])
def test_records_of_a_key_wait_for_one_another_and_others_do_not(
    bench: Bench, in_flight: int
) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, delay_s=0.02))
    sent = records("abcabdaaecbdaef")
    assert bench.sender(in_flight=in_flight).send(sent, 1).failure is None
    under_way = overlaps(bench)
    assert all(len({body[0] for body in each}) == len(each) for each in under_way)
    assert max(map(len, under_way)) == min(in_flight, 6)
    for key in "abcdef":
        of_key = [each for each in bench.stored if each[0] == key]
        assert of_key == [f"{key}:{each.offset}" for each in sent if each.key == key.encode()]


def test_records_of_a_partition_wait_for_one_another_if_the_file_says_so(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, delay_s=0.02))
    sent = [record(n, str(n), partition=n % 2) for n in range(10)]
    bench.sender(order="partition").send(sent, 1)
    under_way = overlaps(bench)
    assert all(len({int(body[0]) % 2 for body in each}) == len(each) for each in under_way)
    assert max(map(len, under_way)) == 2


def test_no_record_waits_for_another_if_the_file_says_so(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, delay_s=0.1))
    bench.sender(order="none", in_flight=5).send(records("aaaaaaaaaa"), 1)
    assert max(map(len, overlaps(bench))) == 5


def test_records_without_a_key_count_as_one_key_of_a_partition(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, delay_s=0.02))
    bench.sender().send([record(n, partition=n % 2) for n in range(10)], 1)
    assert max(map(len, overlaps(bench))) == 2


def test_requests_of_several_records_wait_for_those_with_the_same_keys(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, delay_s=0.05))
    sender = bench.sender(records_per_request=2, body="ndjson")
    sender.send(records("abcdbxcy"), 1)
    under_way = overlaps(bench)
    for one, other in (("b:1", "b:4"), ("c:2", "c:6")):
        assert not any(one in "".join(each) and other in "".join(each) for each in under_way)
    assert max(map(len, under_way)) == 2


def test_after_a_failure_later_records_of_its_key_are_not_sent_and_others_are(
    bench: Bench,
) -> None:
    bench.receiver.obey(Rule(contains="a:3", status=500))
    sender, sent = bench.sender(), records("abcabaab")
    found = sender.send(sent, 1)
    assert found.acknowledged == {0, 1, 2, 4, 7}
    assert isinstance(found.failure, RetriableError)
    assert "500 Internal Server Error" in str(found.failure)
    rest = [sent[n] for n in (3, 5, 6)]
    assert sender.send(rest, 2) == acknowledged(0, 1, 2)
    assert [each for each in bench.stored if each[0] == "a"] == ["a:0", "a:3", "a:5", "a:6"]
    assert [each.headers["onceflow-attempt"] for each in bench.requests[-3:]] == ["2", "2", "2"]


def test_a_receiver_that_fails_all_the_time_gets_a_bounded_number_of_requests(
    bench: Bench,
) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, status=500))
    found = bench.sender(in_flight=3).send([record(n, str(n)) for n in range(100)], 1)
    assert not found.acknowledged
    assert MAX_FAILURES <= len(bench.requests) < MAX_FAILURES + 3

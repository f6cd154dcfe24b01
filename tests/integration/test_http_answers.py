"""The sender `http` on a real receiver: what it makes of every answer, and of none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.contracts.target import Answers
from onceflow.errors import (
    ConfigError,
    CorruptionError,
    OutcomeUnknownError,
    RetriableError,
)
from tests.support.eventually import eventually
from tests.support.sites.http_bench import (
    KEYS,
    LIFETIME_S,
    Bench,
    acknowledged,
    record,
    records,
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


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_status_about_the_record_refuses_it_and_those_after_it_go_on(
    bench: Bench, status: int
) -> None:
    bench.receiver.obey(Rule(contains="a:1", status=status))
    found = bench.sender().send(records("aaa"), 1)
    assert (found.acknowledged, found.failure) == (frozenset({0, 2}), None)
    assert found.refused[1].startswith(f"{status} ")


@pytest.mark.parametrize("status", [408, 409, 423, 425, 429, 500, 502, 503, 504, 599])
def test_a_status_that_passes_is_a_reason_to_try_again(bench: Bench, status: int) -> None:
    bench.receiver.obey(Rule(status=status))
    sender = bench.sender()
    found = sender.send([record(0, "a")], 1)
    assert (found.acknowledged, found.refused) == (frozenset(), {})
    assert f"found {status}" in str(found.failure)
    assert type(found.failure) is RetriableError
    assert sender.send([record(0, "a")], 2) == acknowledged(0)


@pytest.mark.parametrize("status", [302, 307, 401, 403, 404, 405, 410, 415, 501])
def test_a_status_that_no_retry_changes_ends_the_delivery(bench: Bench, status: int) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, status=status))
    with pytest.raises(ConfigError, match=f"found {status}"):
        bench.sender().send(records("abc"), 1)
    assert bench.stored == []


def test_lists_of_the_file_decide_about_statuses(bench: Bench) -> None:
    sender = bench.sender(success=[202, 409], reject=["500-501"])
    bench.receiver.obey(Rule(status=409), Rule(status=501), Rule(status=202), Rule(status=422))
    found = [sender.send([record(n, "a")], 1) for n in range(3)]
    assert found == [
        acknowledged(0),
        Answers(frozenset(), {0: "501 Not Implemented"}, None),
        acknowledged(0),
    ]
    with pytest.raises(ConfigError, match="422"):
        sender.send([record(3, "a")], 1)
    with pytest.raises(ConfigError, match="if it has the record then, name the status"):
        sender.send([record(4, "a")], 1)


def test_what_was_acknowledged_is_said_before_the_delivery_ends(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, contains="b", status=404))
    sender, sent = bench.sender(in_flight=1), records("aba")
    found = sender.send(sent, 1)
    assert found.acknowledged == {0}
    assert isinstance(found.failure, RetriableError)
    with pytest.raises(ConfigError, match="correct `url`"):
        sender.send(sent[1:], 2)


def test_a_redirect_is_not_followed(bench: Bench) -> None:
    elsewhere = f"{bench.receiver.url}/elsewhere?token=not-to-be-shown"
    bench.receiver.obey(Rule(status=308, headers={"Location": elsewhere}))
    with pytest.raises(ConfigError) as refused:
        bench.sender().send([record(0, "a")], 1)
    assert "redirects, which is not followed" in str(refused.value)
    assert f"to http://127.0.0.1:{bench.receiver.port};" in str(refused.value)
    assert "not-to-be-shown" not in str(refused.value)
    assert [each.path for each in bench.requests] == ["/records"]


def test_an_endless_answer_is_not_read_to_its_end(bench: Bench) -> None:
    bench.receiver.obey(Rule(status=200, body_bytes=200_000_000))
    sender = bench.sender()
    assert sender.send([record(0, "a")], 1) == acknowledged(0)
    assert sender.send([record(1, "a")], 1) == acknowledged(0)


def test_one_bad_record_of_a_request_is_found(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, contains="bad", status=422))
    sender = bench.sender(records_per_request=8, body="ndjson", in_flight=1)
    sent = [record(n, "a", b"bad" if n == 5 else str(n).encode()) for n in range(16)]
    found = sender.send(sent, 1)
    assert found.acknowledged == {*range(16)} - {5}
    assert found.refused == {5: "422 Unprocessable Entity"}
    assert "".join(bench.stored).split() == [str(n) for n in range(16) if n != 5]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("is_date", [True, False])
def test_a_receiver_that_asks_to_be_left_alone_is_left_alone(
    bench: Bench, status: int, is_date: bool
) -> None:
    until = datetime.fromtimestamp(bench.clock.unix_ms() / 1000 + 30, UTC)
    after = format_datetime(until, usegmt=True) if is_date else "30"
    bench.receiver.obey(Rule(times=ALWAYS, status=status, headers={"Retry-After": after}))
    sender, sent = bench.sender(in_flight=1), records("abcdef")
    assert isinstance(sender.send(sent, 1).failure, RetriableError)
    assert len(bench.requests) == 1
    bench.receiver.obey()
    for _ in range(2):
        with pytest.raises(RetriableError, match="asks to be left alone"):
            sender.probe()
        assert "asks to be left alone" in str(sender.send(sent, 2).failure)
        bench.clock.sleep(14)
    assert (len(bench.requests), bench.probes) == (1, [])
    bench.clock.sleep(3)
    sender.probe()
    assert sender.send(sent, 2) == acknowledged(*range(6))


@pytest.mark.parametrize("after", ["soon", "-1", "", "Thu, 01 Jan 1970 00:00:00 GMT", "0"])
def test_a_wish_that_cannot_be_read_is_no_reason_to_wait(bench: Bench, after: str) -> None:
    bench.receiver.obey(Rule(status=503, headers={"Retry-After": after}))
    sender = bench.sender()
    assert sender.send(records("a"), 1).failure is not None
    assert sender.send(records("a"), 2) == acknowledged(0)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_lost_answer_is_settled_by_the_same_key_and_the_same_bytes(
    bench: Bench, cut: str
) -> None:
    bench.receiver.obey(Rule(contains="a:1", cut=cut), lifetime_s=LIFETIME_S)
    sender = bench.sender(in_flight=1, **KEYS)
    found = sender.send(records("aaab"), 1)
    assert isinstance(found.failure, OutcomeUnknownError)
    rest = [each for n, each in enumerate(records("aaab")) if n not in found.acknowledged]
    assert sender.send(rest, 2).failure is None
    assert Counter(bench.stored) == Counter(["a:0", "a:1", "a:2", "b:3"])
    first, second = (each for each in bench.requests if each.body == b"a:1")
    assert (first.key, first.body) == (second.key, second.body)


def test_without_a_key_a_lost_answer_is_a_second_effect(bench: Bench) -> None:
    """The level `at least once` is about this."""
    bench.receiver.obey(Rule(cut="after"), lifetime_s=LIFETIME_S)
    sender = bench.sender()
    assert sender.send(records("a"), 1).failure is not None
    assert sender.send(records("a"), 2) == acknowledged(0)
    assert bench.stored == ["a:0", "a:0"]


def test_a_receiver_that_loses_what_it_acknowledged_is_not_noticed(bench: Bench) -> None:
    """The condition of the guarantee is about this."""
    bench.receiver.obey(Rule(is_lost=True))
    assert bench.sender(**KEYS).send(records("a"), 1) == acknowledged(0)
    assert bench.stored == []


@pytest.mark.parametrize("body", ["ndjson", "json_array"])
def test_a_request_of_several_records_is_repeated_as_it_was(bench: Bench, body: str) -> None:
    """Also if the next call could fill it up."""
    bench.receiver.obey(Rule(contains="4", cut="after"), lifetime_s=LIFETIME_S)
    sender = bench.sender(records_per_request=3, body=body, in_flight=1, **KEYS)
    sent = [record(n, "a", str(n).encode()) for n in range(9)]
    found = sender.send(sent[:5], 1)
    assert found.acknowledged == {0, 1, 2}
    sender.send(sent[3:], 2)
    lost, again = (each for each in bench.requests if b"4" in each.body)
    assert (lost.key, lost.body) == (again.key, again.body)
    text = "".join(bench.stored)
    assert [each for each in text if each.isdigit()] == [str(n) for n in range(9)]


def test_requests_stay_as_they_were_if_one_is_cut_in_halves(bench: Bench) -> None:
    """Another process cuts them in the same way, so it must not matter what this one has tried."""
    bad = Rule(times=ALWAYS, contains="bad", status=422)
    bench.receiver.obey(bad, Rule(status=503), lifetime_s=LIFETIME_S)
    given = {"records_per_request": 4, "body": "ndjson", "order": "partition", **KEYS}
    sender = bench.sender(**given)
    sent = [record(n, "a", b"bad" if n == 3 else str(n).encode()) for n in range(8)]
    assert sender.send(sent, 1).acknowledged == frozenset()
    found = sender.send(sent, 2)
    assert ([*found.refused], len(found.acknowledged)) == ([3], 7)
    assert bench.bodies == [
        *("0\n1\n2\nbad\n", "0\n1\n"),
        *("0\n1\n", "2\nbad\n", "2\n", "bad\n", "4\n5\n6\n7\n"),
    ]
    assert bench.sender(**given).send(sent, 1) == found
    assert bench.stored == ["0\n1\n", "2\n", "4\n5\n6\n7\n"]


def test_a_batch_that_begins_again_is_cut_as_if_nothing_was_tried(bench: Bench) -> None:
    """After a rebalance the same process may begin again."""
    bad = Rule(times=ALWAYS, contains="bad", status=422)
    bench.receiver.obey(bad, Rule(status=503))
    sender = bench.sender(records_per_request=4, body="ndjson", **KEYS)
    sent = [record(n, "a", b"bad" if n == 3 else str(n).encode()) for n in range(4)]
    assert sender.send(sent, 1).failure is not None
    assert sender.send(sent, 1).failure is None
    assert bench.bodies[:3] == ["0\n1\n2\nbad\n", "0\n1\n", "0\n1\n2\nbad\n"]


def test_a_request_that_is_still_carried_out_is_asked_for_again(bench: Bench) -> None:
    bench.receiver.obey(Rule(delay_s=1.5), lifetime_s=LIFETIME_S)
    sender = bench.sender(timeout="500 ms", **KEYS)
    found = sender.send(records("a"), 1)
    assert isinstance(found.failure, OutcomeUnknownError)
    assert "expected an answer within 0.5 s" in str(found.failure)
    assert "409 Conflict" in str(sender.send(records("a"), 2).failure)
    eventually(lambda: sender.send(records("a"), 3).failure is None)
    assert bench.stored == ["a:0"]


@pytest.mark.parametrize("count", [1, 2])
def test_other_content_under_a_used_key_stops_the_delivery(bench: Bench, count: int) -> None:
    bench.receiver.obey(lifetime_s=LIFETIME_S)
    several: dict[str, Any] = {"records_per_request": 2, "body": "ndjson"} if count > 1 else {}
    sender = bench.sender(**several, **KEYS)
    sent = [record(n + 1000 * count, "a") for n in range(count)]
    assert sender.send(sent, 1).failure is None
    with pytest.raises(CorruptionError, match="other content under the key"):
        sender.send([each._replace(value=b"other") for each in sent], 2)


def test_after_a_lost_connection_no_further_request_of_the_call_is_sent(bench: Bench) -> None:
    bench.receiver.obey(Rule(times=ALWAYS, cut="before"))
    found = bench.sender(in_flight=2).send([record(n, str(n)) for n in range(100)], 1)
    assert isinstance(found.failure, OutcomeUnknownError)
    assert len(bench.requests) <= 2


def test_a_receiver_that_is_down_is_reported_and_found_again(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        bench = Bench(receiver, tmp_path)
        with closing(bench.sender()) as sender:
            sender.check()
            assert sender.send(records("a"), 1) == acknowledged(0)
            receiver.kill()
            found = sender.send([record(n, str(n)) for n in range(1, 200)], 1)
            assert not found.acknowledged
            assert isinstance(found.failure, RetriableError | OutcomeUnknownError)
            with pytest.raises(RetriableError, match="cannot be reached: HTTP, POST http://127"):
                sender.probe()
            receiver.start()
            sender.probe()
            assert sender.send([record(1, "b")], 2) == acknowledged(0)
        assert bench.stored == ["a:0", "b:1"]


def test_a_connection_that_was_closed_between_two_calls_is_not_used(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        bench = Bench(receiver, tmp_path)
        with closing(bench.sender(in_flight=5, order="none")) as sender:
            for _ in range(3):
                assert sender.send(records("aaaaaaaa"), 1).failure is None
                receiver.kill()
                receiver.start()


def test_a_frozen_receiver_costs_one_timeout_and_not_one_for_each_record(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        bench = Bench(receiver, tmp_path)
        with closing(bench.sender(timeout="1 second", in_flight=2)) as sender:
            assert sender.send(records("a"), 1) == acknowledged(0)
            receiver.freeze()
            found = sender.send([record(n, str(n)) for n in range(500)], 1)
            assert not found.acknowledged
            assert found.failure is not None
            receiver.thaw()
            receiver.obey()
            eventually(lambda: sender.send([record(900, "x")], 2).failure is None)
        assert len(bench.requests) < 30


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("several", [{}, {"records_per_request": 5, "body": "ndjson"}])
def test_whatever_fails_each_record_has_its_effect_once_and_in_order(
    bench: Bench, seed: int, several: dict[str, Any]
) -> None:
    """Also if the process ends, and another one sends everything again."""
    random = Random(seed)
    faults: Sequence[Callable[[], Rule]] = (
        lambda: Rule(cut="before"),
        lambda: Rule(cut="after"),
        lambda: Rule(status=random.choice([408, 500, 502, 503, 425])),
        lambda: Rule(delay_s=1.5),
        lambda: Rule(delay_s=0.05),
    )
    bad = Rule(times=ALWAYS, contains="bad", status=422)
    given = {"timeout": "700 ms", "in_flight": 4, **several, **KEYS}
    all_records = [record(n, random.choice("abcdef")) for n in range(60)]
    all_records[17] = record(17, "a", b"bad")
    sender, left, attempt, calls = bench.sender(**given), all_records, 0, 0

    def go_on() -> bool:
        nonlocal sender, left, attempt, calls
        calls += 1
        if calls in {4, 7, 10}:
            sender, left, attempt = bench.sender(**given), all_records, 0
        attempt += 1
        rules = [
            Rule(times=random.randint(0, 3), delay_s=0.01) if n % 2 else random.choice(faults)()
            for n in range(6)
        ]
        bench.receiver.obey(bad, *(rules if calls < 12 else ()), lifetime_s=LIFETIME_S)
        found = sender.send(left, attempt)
        assert [left[n].offset for n in found.refused] in ([], [17])
        left = [
            each
            for n, each in enumerate(left)
            if n not in found.acknowledged and n not in found.refused
        ]
        return not left and calls > 10

    eventually(go_on, timeout_s=60)
    lines = "\n".join(bench.stored).split()
    assert sorted(int(each[2:]) for each in lines) == [n for n in range(60) if n != 17]
    for key in "abcdef":
        numbers = [int(each[2:]) for each in lines if each[0] == key]
        assert numbers == sorted(numbers)

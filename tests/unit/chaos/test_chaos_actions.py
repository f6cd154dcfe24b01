"""Each action of a rule on messages, between a client and a broker that do not think."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.errors import DeadlineError
from tests.chaos import ChaosProxy, Rule
from tests.chaos.rules import Side
from tests.support.eventually import eventually
from tests.support.fakes.raw_kafka import (
    OF_BROKER,
    ListeningBroker,
    RawClient,
    end_txn,
    heartbeat,
)

CLOCK = SystemClock()
AFTER = heartbeat("after")


@pytest.mark.parametrize(
    "frame",
    [
        heartbeat("known, not looked into"),
        b"\x7f\xff\0\7\0\0\0\5\xff\xff unknown api, no client id",
        b"\0\x1a\x7f\0\0\0\0\5\0\2me unknown version of EndTxn",
        end_txn("looked into"),
    ],
)
def test_what_no_rule_is_about_passes_byte_for_byte(
    listening: ListeningBroker, client: RawClient, frame: bytes
) -> None:
    client.send(frame)

    assert listening.next_request() == frame
    assert client.receive() == frame[4:8] + frame


@pytest.mark.parametrize(("side", "arrived"), [("request", [AFTER]), ("response", [end_txn("t")])])
def test_what_is_dropped_does_not_come_and_the_connection_stays(
    proxy: ChaosProxy,
    listening: ListeningBroker,
    client: RawClient,
    side: Side,
    arrived: list[bytes],
) -> None:
    rule = proxy.add(Rule(api="EndTxn", on=side, action="drop", times=1))

    client.send(end_txn("t"))
    client.send(AFTER)

    assert [listening.next_request()] == arrived
    assert client.receive()[OF_BROKER:] == AFTER
    assert rule.fired == 1


def test_a_held_request_blocks_its_connection_and_no_other(
    proxy: ChaosProxy, listening: ListeningBroker, client: RawClient
) -> None:
    rule = proxy.add(Rule(api="EndTxn", on="request", action="hold"))
    client.send(end_txn("t"))
    client.send(AFTER)
    rule.wait_fired()

    with RawClient(proxy.bootstrap_servers) as other:
        other.send(heartbeat("elsewhere"))
        assert other.receive()[OF_BROKER:] == heartbeat("elsewhere")
    eventually(lambda: len(rule.held) == 1)
    rule.release()

    arrived = [listening.next_request() for _ in range(3)]
    assert arrived == [heartbeat("elsewhere"), end_txn("t"), AFTER]
    assert [client.receive()[OF_BROKER:] for _ in range(2)] == [end_txn("t"), AFTER]


def test_what_is_held_goes_on_in_order_also_when_its_clients_have_gone(
    proxy: ChaosProxy, listening: ListeningBroker
) -> None:
    rule = proxy.add(Rule(api="EndTxn", on="request", action="hold", times=3))
    for count, name in enumerate("abc", 1):
        with RawClient(proxy.bootstrap_servers) as leaving:
            leaving.send(end_txn(name))
            rule.wait_fired(count)

    rule.remove()

    assert [listening.next_request() for _ in "abc"] == [end_txn(name) for name in "abc"]
    assert proxy.delivered == 3
    assert not rule.held


def test_a_held_request_survives_the_brokers_end_of_its_connection(
    proxy: ChaosProxy, listening: ListeningBroker, client: RawClient
) -> None:
    rule = proxy.add(Rule(api="EndTxn", on="request", action="hold"))
    client.send(end_txn("t"))
    rule.wait_fired()

    def has_ended() -> bool:
        # Again and again: the broker may not have taken the proxy's connection yet.
        listening.hang_up()
        return not client.is_silent()

    eventually(has_ended)
    rule.release()

    assert listening.next_request() == end_txn("t")


def test_a_held_request_that_nobody_takes_any_more_is_lost() -> None:
    with ListeningBroker() as gone, ChaosProxy(gone.address) as proxy:
        rule = proxy.add(Rule(on="request", action="hold"))
        with RawClient(proxy.bootstrap_servers) as client:
            client.send(end_txn("t"))
            rule.wait_fired()
        gone.close()

        rule.release()

        assert proxy.delivered == 0


def test_a_delay_ends_by_itself(proxy: ChaosProxy, client: RawClient) -> None:
    proxy.add(Rule(on="response", action="delay", delay_ms=400))
    client.send(heartbeat("late"))

    assert client.is_silent(0.2)
    assert client.receive()[OF_BROKER:] == heartbeat("late")


def test_a_request_is_sent_twice_and_answered_once(
    proxy: ChaosProxy, listening: ListeningBroker, client: RawClient
) -> None:
    proxy.add(Rule(api="EndTxn", on="request", action="duplicate"))

    client.send(end_txn("t"))
    client.send(AFTER)

    first, second = listening.next_request(), listening.next_request()
    assert first == end_txn("t")
    assert second[4:8] != first[4:8]
    assert second[:4] + second[8:] == first[:4] + first[8:]
    assert [client.receive()[OF_BROKER:] for _ in range(2)] == [end_txn("t"), AFTER]


def test_a_connection_is_closed_instead_of_an_answer_coming_back(
    proxy: ChaosProxy, listening: ListeningBroker, client: RawClient
) -> None:
    proxy.add(Rule(api="EndTxn", on="response", action="close"))

    client.send(end_txn("t"))

    assert client.receive() == b""
    assert listening.next_request() == end_txn("t")


@pytest.mark.parametrize("chunk_bytes", [1, 7, 10_000])
def test_a_split_request_arrives_whole(
    proxy: ChaosProxy, client: RawClient, chunk_bytes: int
) -> None:
    rule = proxy.add(Rule(on="request", action="split", chunk_bytes=chunk_bytes))
    long = heartbeat("x" * 2000)

    client.send(long)
    client.send(AFTER)

    assert [client.receive()[OF_BROKER:] for _ in range(2)] == [long, AFTER]
    assert rule.fired == 2


def test_a_slow_answer_comes_whole_in_its_time(proxy: ChaosProxy, client: RawClient) -> None:
    proxy.add(Rule(on="response", action="slow", bytes_per_s=5000))
    long = heartbeat("x" * 3000)

    started_s = CLOCK.monotonic_s()
    client.send(long)

    assert client.receive()[OF_BROKER:] == long
    assert CLOCK.monotonic_s() - started_s > 0.3


@pytest.mark.parametrize(
    ("fields", "is_matched"),
    [
        ({}, True),
        ({"api": "EndTxn"}, True),
        ({"api": "Produce"}, False),
        ({"transactional_id": "onceflow.views.*"}, True),
        ({"transactional_id": "onceflow.clicks.*"}, False),
        ({"broker": 1}, True),
        ({"broker": 2}, False),
    ],
)
@pytest.mark.parametrize("side", ["request", "response"])
def test_a_rule_is_about_what_it_says(
    proxy: ChaosProxy, client: RawClient, side: Side, fields: dict[str, Any], is_matched: bool
) -> None:
    rule = proxy.add(Rule(on=side, action="pass", **fields))

    client.send(end_txn("onceflow.views.s0.l1"))
    client.receive()

    assert rule.fired == is_matched


def test_the_first_rule_that_acts_is_the_only_one(proxy: ChaosProxy, client: RawClient) -> None:
    spares = proxy.add(Rule(on="request", action="pass", times=1))
    drops = proxy.add(Rule(on="request", action="drop", times=1))

    for mark in "abc":
        client.send(heartbeat(mark))

    assert [client.receive()[OF_BROKER:] for _ in range(2)] == [heartbeat("a"), heartbeat("c")]
    assert (spares.fired, drops.fired) == (1, 1)


def test_a_rule_that_does_not_act_in_time_is_named(proxy: ChaosProxy) -> None:
    rule = proxy.add(Rule(api="EndTxn", on="response", action="drop"))

    with pytest.raises(DeadlineError, match="EndTxn"):
        rule.wait_fired(timeout_s=0.05)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"action": "drop", "api": "EndTxm"}, "no api EndTxm"),
        ({"action": "error", "api": "EndTxn", "error": "NOT_CORDINATOR"}, "NOT_CORDINATOR"),
        ({"action": "error", "api": "Fetch", "error": "NOT_COORDINATOR"}, "Fetch cannot"),
        ({"action": "hold"}, "cannot happen to a response"),
        ({"action": "slow"}, "needs `bytes_per_s`"),
    ],
)
def test_a_rule_that_could_never_act_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Rule(on="response", **fields)

"""A gateway from end to end: `onceflow run` as processes, between HTTP clients and a real Kafka.

Every record that was acknowledged is in the topic exactly once and where the answer said, whatever
is killed, frozen or lost on the way, also if it is posted again with its key.
"""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.control.tokens import Role, line_of, new_token
from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError, CorruptionError
from tests.chaos import ChaosProxy, Rule
from tests.chaos.rules import RunningRule
from tests.support.brokers.choice import RunningBroker
from tests.support.brokers.cluster import FaultyCluster
from tests.support.eventually import eventually
from tests.support.jobs.gateway_process import ONE, Gateways, Sent, posts
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic, delete_topic, set_topic
from tests.support.sites.certificates import Authority

END_TIMEOUT_S = 60
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.MID_FENCE,
    CrashPoint.AFTER_FENCE,
    CrashPoint.AFTER_HEAD_READ,
    CrashPoint.LANE_REINIT,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)
AT_START = {*POINTS[:5]}
"""Reached once for each slot, before any post is written by it."""


SLOW_COMMIT = Rule(on="response", action="delay", api="EndTxn", delay_ms=300)
"""After a slow transaction, its id is initialised again."""


@pytest.fixture
def gateways(
    broker: RunningBroker,
    topic: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Gateways]:
    with ExitStack() as stack:
        kafka = broker.bootstrap_servers
        if CrashPoint.LANE_REINIT.value in request.node.name:
            proxy = stack.enter_context(ChaosProxy(kafka))
            proxy.add(SLOW_COMMIT)
            kafka = proxy.bootstrap_servers
        made = Gateways(kafka, tmp_path, topic("views"), broker.bootstrap_servers)
        made.set_up()
        yield made


def test_posts_with_and_without_keys_are_written_where_the_answer_says(gateways: Gateways) -> None:
    keyed, plain = posts(0, 60), [Sent(None, (n, n + 1)) for n in range(1000, 1040, 2)]
    with gateways.running() as gateway:
        gateway.wait_until_ready()
        gateways.send_all([gateway], [*keyed, *plain])
        assert not gateways.unanswered
        gateways.check()
        gateways.send_all([gateway], keyed)  # the same answers, and nothing is written
        gateways.check()
        # Java's clients choose the same partitions by the key.
        found = read_topic(gateways.kafka, gateways.topic)
        assert {len({r.partition for r in found if r.key == key}) for key in (b"p1", b"p2")} == {1}
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(END_TIMEOUT_S) == 0
        assert [each["event"] for each in gateway.events()][-1] == "slot_left"
    with gateways.running() as gateway:
        gateways.send_until_answered([gateway], keyed)
    gateways.check()


def test_bad_posts_are_refused_in_one_sentence_and_write_nothing(gateways: Gateways) -> None:
    record = {"Content-Type": ONE}
    path = f"/v1/{gateways.topic}"
    with gateways.running() as gateway:
        gateway.wait_until_ready()
        gateways.send_all([gateway], [Sent("k", (1,))])
        for body, headers, status, told in (
            (
                b'{"n": 2, "page": "a"}',
                {"Idempotency-Key": "k"},
                422,
                "used with another body or topic",
            ),
            (b'{"n": "2"}', {"Idempotency-Key": "k2"}, 422, "n: expected bigint, found str '2'"),
            (b'{"n": "2"}', {}, 422, "n: expected bigint, found str '2'"),
            (b'{"n": 2, "page": null}', {}, 422, "page: expected a value, found null"),
            (b"x" * 1_100_000, {}, 413, "at most 1048576 are allowed"),
            (b'{"n": 2, "page": "%s"}' % (b"x" * 530_000), {}, 413, "takes at most"),
            (b'{"n": 2, "page": "a"}', {"Content-Type": "text/plain"}, 415, "Content-Type"),
        ):
            got = gateway.ask("POST", path, body, {**record, **headers})
            assert got is not None
            assert (got.status, got.body["status"]) == (status, status)
            assert told in got.body["detail"]
            assert "\n" not in got.body["detail"]
        # What was refused is not remembered: the key may be used for a post that fits.
        gateways.send_all([gateway], [Sent("k2", (2,))])
        assert not gateways.unanswered
    gateways.check()


def test_a_record_that_only_brokers_refuse_takes_no_other_with_it(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    gateways = Gateways(broker.bootstrap_servers, tmp_path, topic("views"))
    gateways.set_up()
    gateways.file.write_text(gateways.file.read_text().replace(", key: page", ""))
    with gateways.running() as gateway:
        gateway.wait_until_ready()
        set_topic(gateways.kafka, gateways.topic, {"max.message.bytes": "2000"})
        big = json.dumps({"n": 5, "page": "".join(map(chr, range(200, 2200)))}).encode()
        results: list[Any] = []

        def post_big() -> None:
            headers = {"Content-Type": ONE, "Idempotency-Key": "big"}
            results.append(gateway.ask("POST", f"/v1/{gateways.topic}", big, headers))

        thread = threading.Thread(target=post_big)
        thread.start()
        gateways.send_until_answered([gateway], posts(10, 40))
        thread.join(END_TIMEOUT_S)
        assert results[0].status == 422
        assert "the brokers refuse a record" in results[0].body["detail"]
    gateways.check()


def test_tokens_roles_and_tls(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    gateways = Gateways(broker.bootstrap_servers, tmp_path, topic("views"))
    gateways.set_up()
    tokens, token = tmp_path / "tokens", new_token()
    tokens.write_text(line_of(token, Role.WRITE, "web"))
    authority = Authority.in_folder(tmp_path / "ca")
    pair = authority.issue("gateway")
    settings = {
        "ONCEFLOW_GATEWAY__TOKENS_FILE": str(tokens),
        "ONCEFLOW_GATEWAY__CERTIFICATE_FILE": str(pair.certificate),
        "ONCEFLOW_GATEWAY__KEY_FILE": str(pair.key),
        "ONCEFLOW_GATEWAY__CA_FILE": str(authority.certificate),
    }
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with gateways.running("", settings) as one, gateways.running("", settings) as two:

        def post(port: int, key: str, given: str) -> int:
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
            headers = {"Authorization": f"Bearer {given}", "Content-Type": ONE}
            headers["Idempotency-Key"] = key
            try:
                body = json.dumps({"n": int(key), "page": "a"}).encode()
                connection.request("POST", f"/v1/{gateways.topic}", body, headers)
                response = connection.getresponse()
                response.read()
                return response.status
            finally:
                connection.close()

        assert post(one.port, "0", "wrong") == 401
        for key in map(str, range(8)):  # of both slots, at both instances
            for port in (one.port, two.port):
                eventually(lambda: post(port, key, token), lambda s: s == 202)  # noqa: B023
        tokens.write_text("")
        eventually(lambda: post(one.port, "7", token), lambda status: status == 401)
    found = read_topic(gateways.kafka, gateways.topic)
    assert sorted(record.row["n"] for record in found) == [*range(8)]


@pytest.mark.crash
@pytest.mark.drawn(3)
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_and_repeats_no_record(
    gateways: Gateways, point: CrashPoint, random: Random
) -> None:
    first, more = posts(0, 200), posts(1000, 40)
    arrival = random.randint(1, 2) if point in AT_START else random.randint(8, 16)
    with gateways.running(f"{point.value}:kill:{arrival}") as gateway:
        if point not in AT_START:
            gateway.wait_until_ready()
        threads = threading.Thread(target=gateways.send_all, args=[[gateway], first])
        threads.start()
        assert gateway.process.wait(END_TIMEOUT_S) == -signal.SIGKILL
        assert gateways.proof.read_text() == point.value
        threads.join(END_TIMEOUT_S)
    assert gateways.unanswered
    with gateways.running() as gateway:
        gateways.send_until_answered([gateway], [*first, *more])
        gateways.send_all([gateway], first)
        assert not gateways.unanswered
    gateways.check()


@pytest.mark.crash
@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.LANE_REINIT,
        CrashPoint.BEFORE_BEGIN,
        CrashPoint.MID_PRODUCE,
        CrashPoint.AFTER_EFFECT,
        CrashPoint.BEFORE_COMMIT,
        CrashPoint.AFTER_COMMIT,
    ],
    ids=lambda point: point.value,
)
def test_a_frozen_instance_that_wakes_up_writes_nothing_twice(
    gateways: Gateways, point: CrashPoint, random: Random
) -> None:
    first = posts(0, 200)
    arrival = random.randint(8, 16)
    with gateways.running(f"{point.value}:stop:{arrival}") as frozen:
        frozen.wait_until_ready()
        sending = threading.Thread(target=gateways.send_all, args=[[frozen], first])
        sending.start()
        eventually(gateways.proof.exists, timeout_s=END_TIMEOUT_S)
        with gateways.running() as other:
            gateways.send_until_answered([other], posts(1000, 60))
            gateways.send_until_answered([other], first)
            frozen.process.send_signal(signal.SIGCONT)
            sending.join(END_TIMEOUT_S)
            # Both work, and share the slots again.
            gateways.send_until_answered([frozen, other], [*posts(2000, 60), *first])
            eventually(lambda: frozen.events("slot_taken")[2:], timeout_s=END_TIMEOUT_S)
            gateways.send_until_answered([frozen, other], [*posts(3000, 60), *first])
    gateways.check()


@pytest.mark.crash
def test_slots_move_between_instances_while_clients_post(gateways: Gateways) -> None:
    before, during, after = posts(0, 100), posts(1000, 600), posts(5000, 100)
    with gateways.running() as one:
        gateways.send_until_answered([one], before)
        with gateways.running() as two:
            two.wait_until_ready()
            sending = threading.Thread(
                target=gateways.send_until_answered, args=[[one, two], during]
            )
            sending.start()
            eventually(lambda: two.events("slot_taken"), timeout_s=END_TIMEOUT_S)
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(END_TIMEOUT_S) == 0
            with gateways.running() as three:
                sending.join(END_TIMEOUT_S)
                assert not sending.is_alive()
                gateways.send_until_answered([two, three], [*before, *during, *after])
                taken = [len(each.events("slot_taken")) for each in (two, three)]
                assert sum(taken) >= 3
    gateways.check()


@pytest.mark.crash
def test_a_commit_whose_answer_is_lost_is_found_out(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    with ChaosProxy(broker.bootstrap_servers) as proxy:
        gateways = Gateways(
            proxy.bootstrap_servers, tmp_path, topic("views"), broker.bootstrap_servers
        )
        gateways.set_up()
        with gateways.running() as gateway:
            gateway.wait_until_ready()
            gateways.send_until_answered([gateway], posts(0, 20))
            pattern = f"onceflow-gateway.{gateways.name}.*"
            for number, rules in enumerate(
                (
                    [Rule(on="response", action="error", api="EndTxn", error="UNKNOWN",
                          transactional_id=pattern, times=2)],
                    [Rule(on="response", action="close", api="EndTxn",
                          transactional_id=pattern, times=3)],
                    [Rule(on="request", action="duplicate", api="EndTxn",
                          transactional_id=pattern, times=5)],
                    [Rule(on="response", action="close", api="Produce", times=3)],
                    [SLOW_COMMIT, Rule(on="response", action="error", api="InitProducerId",
                                       error="COORDINATOR_LOAD_IN_PROGRESS", times=3)],
                )
            ):  # fmt: skip
                active = [proxy.add(rule) for rule in rules]
                gateways.send_until_answered([gateway], posts(1000 * (number + 1), 60))
                remove_when_fired(active)
        gateways.check()


def remove_when_fired(rules: Sequence[RunningRule]) -> None:
    for each in rules:
        each.wait_fired(1, timeout_s=END_TIMEOUT_S)
        each.remove()


@pytest.mark.crash
def test_brokers_that_restart_lose_and_repeat_no_record(
    cluster: FaultyCluster, topic: Callable[[str], str], tmp_path: Path
) -> None:
    gateways = Gateways(cluster.bootstrap_servers, tmp_path, topic("views"))
    gateways.set_up()
    with gateways.running() as gateway:
        gateways.send_until_answered([gateway], posts(0, 40))
        for number, broker in enumerate(cluster.brokers, start=1):
            sending = threading.Thread(
                target=gateways.send_until_answered,
                args=[[gateway], posts(1000 * number, 150)],
                kwargs={"timeout_s": 180},
            )
            sending.start()
            broker.kill()
            broker.restart()
            cluster.wait_until_ready()
            sending.join(240)
            assert not sending.is_alive()
    gateways.check()


def test_topics_that_would_lose_keys_are_refused(gateways: Gateways) -> None:
    keys = f"onceflow.gateway.{gateways.name}.keys"
    create_topic(gateways.kafka, keys, 3, {"retention.ms": "3600000", "retention.bytes": "1000"})
    with gateways.running() as gateway:
        assert gateway.process.wait(END_TIMEOUT_S) == ConfigError.exit_code
        told = gateway.errors.read_text()
    for part in ("3 partitions", "retention.ms is 3600000", "retention.bytes is 1000"):
        assert part in told
    delete_topic(gateways.kafka, keys)
    create_topic(gateways.kafka, keys, 2, {"cleanup.policy": "compact"})
    with gateways.running() as gateway:
        assert gateway.process.wait(END_TIMEOUT_S) == ConfigError.exit_code
        assert "cleanup.policy is compact" in gateway.errors.read_text()


def test_a_memory_that_was_deleted_ends_the_gateway(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        gateways.send_until_answered([gateway], posts(0, 5))
        delete_topic(gateways.kafka, f"onceflow.gateway.{gateways.name}.keys")
        assert gateway.process.wait(END_TIMEOUT_S) == CorruptionError.exit_code
        assert "the topic of remembered keys was deleted" in gateway.errors.read_text()

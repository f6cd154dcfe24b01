"""A survey's look-ups at brokers, besides offsets: ages, open transactions, bulletins."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Producer

from onceflow.clock import SystemClock
from onceflow.contracts.connector import MAX_BULLETIN_BYTES, Connection, TopicSpec
from onceflow.errors import ConfigError, DeadlineError, InvariantError
from onceflow.protocol.identity import bulletin_group
from onceflow_connectors.kafka.admin.bulletins import KafkaBulletinBoard
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import Scene
from tests.support.eventually import eventually
from tests.support.outside.topics import delete_before, ordered_producer

NOBODY = "127.0.0.1:1"
SLACK_S = 3.0


def produced(broker: RunningBroker, topic: str, timestamps: dict[int, list[int]]) -> None:
    producer = ordered_producer(broker.bootstrap_servers)
    for partition, every in timestamps.items():
        for timestamp_ms in every:
            producer.produce(topic, b"x", partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


def test_timestamps_of_records(scene: Scene, sink: RealSink, broker: RunningBroker) -> None:
    now_ms = SystemClock().unix_ms()
    sink.broker.create_topic(TopicSpec(scene.pipeline, 3), scene.within())
    produced(broker, scene.pipeline, {0: [now_ms, now_ms + 2, now_ms + 1], 1: [now_ms + 5]})
    found = sink.broker.first_timestamps(scene.pipeline, {0: 2, 1: 0, 2: 0}, scene.within())
    assert found == {0: now_ms + 1, 1: now_ms + 5}
    assert sink.broker.first_timestamps(scene.pipeline, {1: 1}, scene.within()) == {}
    newest = sink.broker.newest_timestamps(scene.pipeline, scene.within())
    assert newest == {0: now_ms + 2, 1: now_ms + 5}
    delete_before(broker.bootstrap_servers, scene.pipeline, 0, 1)
    assert sink.broker.first_timestamps(scene.pipeline, {0: 0}, scene.within()) == {}


def test_a_topic_that_does_not_exist_has_no_timestamps(scene: Scene, sink: RealSink) -> None:
    assert sink.broker.newest_timestamps(scene.pipeline, scene.within()) == {}
    assert sink.broker.first_timestamps(scene.pipeline, {0: 0}, scene.within(2.0)) == {}
    assert sink.broker.first_timestamps(scene.pipeline, {}, scene.within()) == {}


def test_open_transactions_are_told_with_their_producers(
    scene: Scene, sink: RealSink, broker: RunningBroker
) -> None:
    sink.broker.create_topic(TopicSpec(scene.pipeline, 2), scene.within())
    produced(broker, scene.pipeline, {0: [1, 2]})
    began_ms = SystemClock().unix_ms()
    settings = {"transactional.id": f"up-{scene.pipeline}", "transaction.timeout.ms": 50_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(scene.pipeline, b"x", partition=0)
    assert producer.flush(30) == 0
    (found,) = sink.broker.open_transactions(scene.pipeline, [0, 1], scene.within())
    assert (found.partition, found.start_offset) == (0, 2)
    assert (found.transactional_id, found.timeout_ms) == (f"up-{scene.pipeline}", 50_000)
    assert began_ms - 1_000 <= found.started_ms <= SystemClock().unix_ms()
    producer.commit_transaction(30)
    eventually(
        lambda: sink.broker.open_transactions(scene.pipeline, [0, 1], scene.within()),
        lambda left: left == [],
    )


def test_open_transactions_cannot_be_asked_for_in_every_way(broker: RunningBroker) -> None:
    unknown = RealSink(broker.bootstrap_servers, {"ssl.engine.location": "/nowhere"})
    with pytest.raises(ConfigError, match=r"ssl\.engine\.location"):
        unknown.broker.open_transactions("t", [0], unknown.within())
    nobody = RealSink(NOBODY)
    with pytest.raises((ConfigError, DeadlineError), match=NOBODY):
        nobody.broker.open_transactions("t", [0], nobody.within(1.0))


def test_bulletins_are_kept_by_kind_and_replaced(scene: Scene, sink: RealSink) -> None:
    with closing(KafkaBulletinBoard(scene.pipeline, sink.connection)) as board:
        assert board.read(scene.within()) == {}
        scene.ledger.create(2, scene.within())
        for text in ("first", "second"):
            board.post(0, text)
        board.post(1, "x" * (MAX_BULLETIN_BYTES - 1))
        board.settle(scene.within())
        assert board.read(scene.within()) == {0: "second", 1: "x" * (MAX_BULLETIN_BYTES - 1)}
        with pytest.raises(InvariantError):
            board.post(1, "x" * MAX_BULLETIN_BYTES)
    with closing(KafkaBulletinBoard(scene.pipeline, sink.connection)) as other:
        assert other.read(scene.within())[0] == "second"
    assert sink.broker.group_members(bulletin_group(scene.pipeline), scene.within()) == 0


def test_a_board_without_brokers_keeps_nobody_waiting() -> None:
    clock = SystemClock()
    board = KafkaBulletinBoard("p", Connection(NOBODY))
    began_s = clock.monotonic_s()
    for _ in range(100):
        board.post(0, "text")
    assert clock.monotonic_s() - began_s < SLACK_S
    board.settle(clock.within(0.5))
    with pytest.raises(DeadlineError):
        board.read(clock.within(1.0))
    board.close()
    assert clock.monotonic_s() - began_s < 3 * SLACK_S

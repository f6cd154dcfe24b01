"""How far planning goes: not beyond what is decided, and not on where a log became shorter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection, Place, TopicInfo
from onceflow.contracts.source import SourceSpec
from onceflow.contracts.source_block import KafkaTopics
from onceflow.errors import CorruptionError
from onceflow_connectors.kafka.source import planner
from onceflow_connectors.kafka.source.planner import KafkaPlanner
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.brokers.choice import RunningBroker
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic

PATIENCE_S = 20


class Brokers:
    """As much of an `Origin` as planning asks for: one topic with one partition.

    No broker makes a log shorter for a test, so its offsets are made up.
    """

    end = 10

    def __init__(self, connection: Connection, clock: ManualClock) -> None:
        """Nothing is connected."""

    def topics(self, wanted: KafkaTopics) -> Mapping[str, TopicInfo]:
        return {"clicks": TopicInfo("clicks", "id-1", 1, 1, 1)}

    def known_topics(self, topic_ids: Mapping[str, str]) -> Mapping[str, TopicInfo]:
        return {"clicks": TopicInfo("clicks", "id-1", 1, 1, 1)}

    def starts(self, places: Iterable[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, 0)

    def ends(self, places: Iterable[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, self.end)


def planning(topic: str, brokers: str, clock: Clock) -> KafkaPlanner:
    spec = SourceSpec("s", "text", pa.schema([pa.field("line", pa.string())]))
    return KafkaPlanner(KafkaSource(topics=(topic,)), spec, Connection(brokers), clock)


def test_a_log_that_became_shorter_is_never_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "KafkaOrigin", Brokers)
    plans = planning("clicks", "no-broker:9092", ManualClock())
    reached = plans.latest_position(plans.initial_position(), None)
    assert reached["clicks"]["partitions"] == {"0": 10}
    monkeypatch.setattr(Brokers, "end", 4)
    with pytest.raises(CorruptionError, match="shorter"):
        plans.latest_position(reached, None)


def test_planning_ends_before_the_first_open_transaction(
    broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    """p: 3 rec | 2 rec (open)"""
    name, servers = topic("in"), {"bootstrap.servers": broker.bootstrap_servers}
    create_topic(broker.bootstrap_servers, name, 1)
    plain = Producer(servers)
    for _ in range(3):
        plain.produce(name, b"line")
    assert plain.flush(PATIENCE_S) == 0
    open_one = Producer({**servers, "transactional.id": f"open-{name}"})
    open_one.init_transactions(PATIENCE_S)
    open_one.begin_transaction()
    for _ in range(2):
        open_one.produce(name, b"line")
    assert open_one.flush(PATIENCE_S) == 0
    eventually(lambda: high_watermark(servers, name), lambda end: end == 5)
    plans = planning(name, broker.bootstrap_servers, SystemClock())
    try:
        reached = plans.latest_position(plans.initial_position(), None)
    finally:
        plans.close()
        open_one.abort_transaction(PATIENCE_S)
    assert reached[name]["partitions"] == {"0": 3}


def high_watermark(servers: Mapping[str, str], topic: str) -> int:
    consumer = Consumer({**servers, "group.id": "ends", "isolation.level": "read_uncommitted"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1])
    finally:
        consumer.close()

"""Our partitioners against librdkafka's own, on real partitions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from confluent_kafka import KafkaError, Message, Producer

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, TopicSpec
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.sink.partitioners import partitions_of
from tests.support.brokers.choice import RunningBroker

PARTITIONS = 7


@pytest.mark.parametrize(
    ("ours", "theirs"), [("crc32", "consistent"), ("murmur2", "murmur2")], ids=["crc32", "murmur2"]
)
def test_every_key_goes_where_librdkafka_sends_it(
    broker: RunningBroker, topic: Callable[[str], str], random: Random, ours: str, theirs: str
) -> None:
    name = topic("keys")
    lookup = KafkaBroker(Connection(broker.bootstrap_servers))
    lookup.create_topic(TopicSpec(name, PARTITIONS), SystemClock().within(20.0))
    lookup.close()
    keys: list[bytes | None] = [None, b"", *(random.randbytes(n % 40) for n in range(500))]
    chosen: dict[int, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        chosen[int(message.value() or b"")] = int(message.partition() or 0)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": theirs})
    for number, key in enumerate(keys):
        producer.produce(name, b"%d" % number, key, on_delivery=delivered)
    assert producer.flush(20.0) == 0

    assert [chosen[number] for number in range(len(keys))] == partitions_of(ours, keys, PARTITIONS)

"""What a sceptic reads back: topics and ledger through a plain client, decoded from the published
formats alone. Shares no code with the product, so that it can contradict it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

HEADER = struct.Struct(">BBHIIIQQ")
MAX_POLLS = 20_000
POLL_S = 0.5


@dataclass(frozen=True)
class Written:
    """One visible record of an output topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    header: bytes | None

    @property
    def batch_id(self) -> int:
        assert self.header is not None
        return int(HEADER.unpack(self.header)[6])

    @property
    def sequence(self) -> int:
        assert self.header is not None
        return int(HEADER.unpack(self.header)[7])

    @property
    def row(self) -> dict[str, Any]:
        assert self.value is not None
        return dict(json.loads(self.value))


def read_topic(
    bootstrap_servers: str, topic: str, isolation_level: str = "read_committed"
) -> list[Written]:
    """Every visible record up to the high watermark at the call, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "sceptic",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        written: list[Written] = []
        for partition in sorted(partitions):
            written += _read_partition(consumer, topic, partition)
        return written
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> list[Written]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    consumer.assign([TopicPartition(topic, partition, low)])
    found: list[Written] = []
    for _ in range(MAX_POLLS):
        (position,) = consumer.position([TopicPartition(topic, partition)])
        if low == high or position.offset >= high:
            return found
        for message in consumer.consume(1000, POLL_S):
            error = message.error()
            if error is None:
                offset, header = message.offset(), dict(message.headers() or []).get("onceflow")
                assert offset is not None
                assert header is None or isinstance(header, bytes)
                found.append(Written(partition, offset, message.key(), message.value(), header))
            elif error.code() != KafkaError._PARTITION_EOF:
                raise AssertionError(f"cannot read {topic}: {error}")
    raise AssertionError(f"{topic}-{partition} is not readable up to {high}: hung transaction?")


def read_ledger(bootstrap_servers: str, pipeline: str) -> list[dict[str, Any]]:
    """Every committed `head`, oldest first, as plain JSON."""
    records = read_topic(bootstrap_servers, f"onceflow.ledger.{pipeline}")
    return [json.loads(r.value) for r in records if r.key == b"head" and r.value is not None]

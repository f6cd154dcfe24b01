"""A sceptic's history: topics and ledger read with a plain client, decoded from the published
formats alone. Shares nothing with the product but its clock, so that it can contradict it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow.clock import SystemClock

HEADER = struct.Struct(">BBHIIIQQ")
POLL_S = 0.5
ANSWER_TIMEOUT_S = 20.0
MAX_IDLE_S = 90.0
"""Without a record: longer than any transaction that a test leaves open, which Kafka aborts after
60 s and up to 10 more."""
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


@dataclass(frozen=True)
class Written:
    """One visible record of an output topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    header: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0

    @property
    def generation(self) -> int:
        assert self.header is not None
        return int(HEADER.unpack(self.header)[4])

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
    """Every visible record up to the high watermark at the call, partition by partition.

    Waits for transactions that are open below it; fails if one stays open.
    """
    return list(stream_topic(bootstrap_servers, topic, isolation_level))


def stream_topic(
    bootstrap_servers: str, topic: str, isolation_level: str = "read_committed"
) -> Iterator[Written]:
    """As `read_topic`, for topics that are too large for memory."""
    ends = _ends(bootstrap_servers, topic)
    consumer = _consumer(bootstrap_servers, isolation_level)
    try:
        for partition, bounds in ends.items():
            yield from _read_partition(consumer, TopicPartition(topic, partition), bounds)
    finally:
        consumer.close()


def _consumer(bootstrap_servers: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "sceptic",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # The next partition waits for the answer about the one before.
            "fetch.wait.max.ms": 20,
        }
    )


def _ends(bootstrap_servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> first offset and high watermark.

    Not asked through a reader of committed records, which gets the last stable offset instead.
    """
    consumer = _consumer(bootstrap_servers, "read_uncommitted")
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic].partitions
        return {
            partition: _bounds(consumer, TopicPartition(topic, partition))
            for partition in sorted(partitions)
        }
    finally:
        consumer.close()


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """First offset and high watermark, asked again while a new partition has no leader yet."""
    patience = SystemClock().within(MAX_IDLE_S)
    while True:
        try:
            start, end = consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or patience.is_over:
                raise
            SystemClock().sleep(POLL_S)
        else:
            return int(start), int(end)


def _read_partition(
    consumer: Consumer, place: TopicPartition, bounds: tuple[int, int]
) -> Iterator[Written]:
    start, end = bounds
    consumer.assign([TopicPartition(place.topic, place.partition, start)])
    patience = SystemClock().within(MAX_IDLE_S)
    while not patience.is_over:
        (position,) = consumer.position([place])
        if start == end or position.offset >= end:
            return
        # Wait for the first only: asked for a thousand, it would wait for the thousandth.
        for message in consumer.consume(1, POLL_S) + consumer.consume(1000, 0):
            error = message.error()
            if error is None:
                patience = SystemClock().within(MAX_IDLE_S)
                yield _written(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise AssertionError(f"cannot read {place.topic}: {error}")
    raise AssertionError(
        f"{place.topic}-{place.partition} is not readable up to {end}: hung transaction?"
    )


def _written(message: Message) -> Written:
    partition, offset = message.partition(), message.offset()
    headers: list[Any] = [*(message.headers() or [])]
    header = dict(headers).get("onceflow")
    assert partition is not None
    assert offset is not None
    assert header is None or isinstance(header, bytes)
    return Written(
        partition,
        offset,
        message.key(),
        message.value(),
        header,
        tuple(headers),
        message.timestamp()[1],
    )


def read_ledger(bootstrap_servers: str, pipeline: str) -> list[dict[str, Any]]:
    """Every committed `head`, oldest first, as plain JSON."""
    records = read_topic(bootstrap_servers, f"onceflow.ledger.{pipeline}")
    return [json.loads(r.value) for r in records if r.key == b"head" and r.value is not None]

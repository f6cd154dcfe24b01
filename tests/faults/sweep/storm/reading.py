"""Reads topics to their end: the input for the oracle, everything for the evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow.clock import Clock, Deadline
from tests.faults.sweep.storm.workload import Counted

READ_TIMEOUT_S = 600.0
"""For millions of records on a busy machine."""
LOOK_UP_TIMEOUT_S = 20.0
CHUNK = 10_000


def messages(
    bootstrap_servers: str, topic: str, clock: Clock, isolation_level: str = "read_committed"
) -> Iterator[Message]:
    """Every visible record, from the start to the end as it is at the call.

    Raises:
        AssertionError: the end was not reached in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    deadline = Deadline.after(clock, READ_TIMEOUT_S)
    try:
        unread = _assign(consumer, topic)
        while unread:
            assert not deadline.is_over, f"{topic} is not readable to its end: hung transaction?"
            yield from _records(consumer.consume(CHUNK, 0.5))
            # Control records have offsets, too: the last record need not be just below the end.
            offsets = {p.partition: p.offset for p in consumer.position(consumer.assignment())}
            unread = {p: end for p, end in unread.items() if offsets[p] < end}
    finally:
        consumer.close()


def _assign(consumer: Consumer, topic: str) -> dict[int, int]:
    """Read all partitions from their starts; returns the ends of those that are not empty."""
    partitions = consumer.list_topics(topic, LOOK_UP_TIMEOUT_S).topics[topic].partitions
    places, ends = [], {}
    for partition in sorted(partitions):
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), LOOK_UP_TIMEOUT_S
        )
        places.append(TopicPartition(topic, partition, low))
        if low < high:
            ends[partition] = high
    consumer.assign(places)
    return ends


def _records(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)


def count_input(bootstrap_servers: str, topic: str, clock: Clock) -> Counted:
    """What the input log holds, by windows."""
    counted = Counted()
    for message in messages(bootstrap_servers, topic, clock):
        value = message.value()
        assert isinstance(value, bytes)
        counted.add(value)
    return counted


def dump(
    bootstrap_servers: str, topic: str, file: Path, clock: Clock, isolation_level: str
) -> None:
    """A topic as JSON lines: partition, offset, timestamp, key, value, header."""
    with file.open("w") as lines:
        for message in messages(bootstrap_servers, topic, clock, isolation_level):
            key, value = message.key(), message.value()
            header = dict(message.headers() or []).get("onceflow")
            told = {
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": _text(key),
                "value": _text(value),
                "header": header.hex() if isinstance(header, bytes) else None,
            }
            lines.write(json.dumps(told) + "\n")


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="backslashreplace") if isinstance(data, bytes) else data

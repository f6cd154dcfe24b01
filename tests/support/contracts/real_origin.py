"""A Kafka topic as an origin of `onceflow.testing.sources`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer

from onceflow.contracts.connector import Connection
from onceflow.testing.sources import Record
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import (
    add_partitions,
    create_topic,
    delete_before,
    delete_topic,
    find_topic,
    ordered_producer,
    set_topic,
)
from tests.support.reading import KafkaUnderTest

PARTITIONS = 2
COMPACTING = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"}
POLL_S = 0.2


@dataclass
class KafkaOrigin:
    """An origin that can do everything."""

    bootstrap_servers: str
    topic: str
    options: Mapping[str, object] = field(default_factory=dict)

    def create(self) -> None:
        create_topic(self.bootstrap_servers, self.topic, PARTITIONS, {"retention.ms": "-1"})
        eventually(lambda: self.partitions() == PARTITIONS)

    @property
    def block(self) -> KafkaSource:
        return KafkaSource.model_validate({"topics": [self.topic], **self.options})

    def source(self) -> KafkaUnderTest:
        return KafkaUnderTest(self.block, Connection(self.bootstrap_servers))

    def append(self, partition: int, records: Sequence[Record]) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        for key, value in records:
            producer.produce(self.topic, value, key, partition)
        assert producer.flush(POLL_S * 100) == 0

    def begin(self, partition: int, records: Sequence[Record]) -> KafkaTransaction:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for key, value in records:
            producer.produce(self.topic, value, key, partition)
        assert producer.flush(30) == 0
        return KafkaTransaction(producer)

    def compact(self) -> None:
        set_topic(self.bootstrap_servers, self.topic, COMPACTING)
        # The cleaner never touches the newest segment, and a new one begins with a record only.
        self.begin(0, [(b"roll", b"roll")]).abort()
        eventually(self._keys, until=lambda keys: len(keys) == len(set(keys)))

    def delete_before(self, partition: int, offset: int) -> None:
        delete_before(self.bootstrap_servers, self.topic, partition, offset)

    def recreate(self) -> None:
        delete_topic(self.bootstrap_servers, self.topic)
        self.create()

    def add_partition(self) -> int:
        before = self.partitions()
        add_partitions(self.bootstrap_servers, self.topic, before + 1)
        return before

    def partitions(self) -> int:
        found = find_topic(self.bootstrap_servers, self.topic)
        return len(found.partitions) if found else 0

    def _keys(self) -> list[bytes | None]:
        """Keys of all records that are still in partition 0, committed or not."""
        left = read_topic(self.bootstrap_servers, self.topic, "read_uncommitted")
        return [record.key for record in left if record.partition == 0]


@dataclass
class KafkaTransaction:
    """Implements `onceflow.testing.sources.Transaction`."""

    producer: Producer

    def commit(self) -> None:
        self.producer.commit_transaction(30)

    def abort(self) -> None:
        self.producer.abort_transaction(30)

"""A real Kafka for the consumer's contract suite, with either flavour of the consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import OffsetAndMetadata

from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.consumer import FilteringConsumer, Hooks, Position, Rules
from onceflow_connectors.consumer import confluent as confluent_flavour
from onceflow_connectors.consumer import kafka_python as kafka_python_flavour
from onceflow_connectors.consumer.admission import NO_HOOKS, STRICT
from onceflow_connectors.consumer.client import NO_PROPERTIES
from onceflow_connectors.kafka.sink.outbox import QUEUE
from tests.support.contracts.consumer_steps import Written
from tests.support.outside.topics import (
    administration,
    create_topic,
    delete_before,
    ordered_producer,
    recreate_topic,
)

ANSWER_TIMEOUT_S = 30
NOBODY = "127.0.0.1:1"
"""Nothing listens on a port so low."""


@dataclass(frozen=True)
class Flavour:
    """One flavour of the consumer, and how it is asked for what it must refuse."""

    consumer: type[confluent_flavour.Consumer] | type[kafka_python_flavour.Consumer]
    uncommitted: Mapping[str, Any]
    auto_commit: Mapping[str, Any]
    cooperative: Mapping[str, Any]
    fresh_metadata: Mapping[str, Any]
    """The property that makes it ask for topics and partitions five times a second."""


FLAVOURS = {
    "confluent": Flavour(
        confluent_flavour.Consumer,
        {"isolation.level": "read_uncommitted"},
        {"enable.auto.commit": True},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"topic.metadata.refresh.interval.ms": 200},
    ),
    "kafka_python": Flavour(
        kafka_python_flavour.Consumer,
        {"isolation_level": "read_uncommitted"},
        {"enable_auto_commit": True},
        {"partition_assignment_strategy": [CooperativeStickyAssignor]},
        {"metadata_max_age_ms": 200},
    ),
}


class RealConsumerKafka:
    """Implements `consumer_steps.ConsumerKafka`."""

    def __init__(self, bootstrap_servers: str, flavour: Flavour) -> None:
        self.uncommitted = flavour.uncommitted
        self.auto_commit = flavour.auto_commit
        self.cooperative = flavour.cooperative
        self.bootstrap_servers = bootstrap_servers
        self._flavour = flavour
        # Quiet: clients outlive the broker at the end of a run.
        self._connection: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 2,
        }

    def consumer(
        self,
        topics: Sequence[str],
        group: str,
        rules: Rules = STRICT,
        hooks: Hooks = NO_HOOKS,
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> FilteringConsumer:
        return self._flavour.consumer(
            self.bootstrap_servers,
            group=group,
            topics=topics,
            rules=rules,
            hooks=hooks,
            properties=properties,
        )

    def consumer_at(self, address: str) -> FilteringConsumer:
        return self._flavour.consumer(address, group="group", topics=["any"])

    def create_topic(self, topic: str, partitions: int) -> None:
        create_topic(self.bootstrap_servers, topic, partitions)

    def recreate_topic(self, topic: str, partitions: int) -> None:
        recreate_topic(self.bootstrap_servers, topic, partitions)

    def write(self, topic: str, records: Sequence[Written]) -> None:
        producer = ordered_producer(self.bootstrap_servers, QUEUE["compression.type"])
        _produce(producer, topic, records)

    def write_aborted(self, topic: str, records: Sequence[Written]) -> None:
        producer = Producer({**self._connection, "transactional.id": f"abort-{topic}"})
        producer.init_transactions(ANSWER_TIMEOUT_S)
        producer.begin_transaction()
        _produce(producer, topic, records)
        producer.abort_transaction(ANSWER_TIMEOUT_S)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        delete_before(self.bootstrap_servers, topic, partition, offset)

    def commit_by_another(self, group: str, position: Position) -> None:
        offset = TopicPartition(position.topic, position.partition, position.offset, position.state)
        with self._plain_consumer(group) as consumer:
            consumer.commit(offsets=[offset], asynchronous=False)

    def commit_without_end(self, group: str, position: Position) -> None:
        """Commit as clients do that know where metadata ends."""
        place = kafka.TopicPartition(position.topic, position.partition)
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, group_id=group, enable_auto_commit=False
        )
        try:
            consumer.commit({place: OffsetAndMetadata(position.offset, position.state, -1)})
        finally:
            consumer.close(autocommit=False)

    def committed(self, group: str, topic: str, partition: int) -> Position | None:
        with self._plain_consumer(group) as consumer:
            [found] = consumer.committed([TopicPartition(topic, partition)], ANSWER_TIMEOUT_S)
        if found.offset < 0:
            return None
        return Position(topic, partition, found.offset, found.metadata or "")

    def forget_offsets(self, group: str) -> None:
        """By hand: a broker looks every ten minutes for those that have expired."""
        with administration(self.bootstrap_servers) as admin:
            admin.delete_consumer_groups([group])[group].result(ANSWER_TIMEOUT_S)

    def expel_all(self, group: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            members = admin.describe_groups([group])[group]["members"]
            admin.remove_group_members(
                group, [MemberToRemove(member_id=member["member_id"]) for member in members]
            )
        finally:
            admin.close()

    def _plain_consumer(self, group: str) -> Consumer:
        return Consumer({**self._connection, "group.id": group})


def _produce(producer: Producer, topic: str, records: Sequence[Written]) -> None:
    errors = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=[(HEADER_NAME, record.header)] if record.header is not None else None,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(ANSWER_TIMEOUT_S) == 0
    assert errors == []

"""Operations on topics of a real Kafka, without the product."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, closing

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from tests.support.eventually import eventually

ANSWER_TIMEOUT_S = 30
FORGOTTEN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}
"""Said by the leader of a deleted topic, and by a client whose metadata no longer has it."""


def administration(bootstrap_servers: str) -> AbstractContextManager[AdminClient]:
    """A client that ends with its block, and is quiet about a broker that is gone.

    One that is left to Python's collector may be ended by a thread of its own, and aborts.
    """
    client: AbstractContextManager[AdminClient] = AdminClient(
        {"bootstrap.servers": bootstrap_servers, "log_level": 2}
    )
    return client


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """With as many replicas as the brokers give by default; fails if it exists."""
    wanted = NewTopic(topic, partitions, config=dict(config or {}))
    with administration(bootstrap_servers) as admin:
        admin.create_topics([wanted])[topic].result(ANSWER_TIMEOUT_S)
        # The controller answers before the brokers know of it.
        eventually(lambda: topic in admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics)


Compression = str | int | float | bool

_spare: dict[tuple[str, Compression], Producer] = {}
"""The next producer, if it is asked for with the same arguments as the last one."""


def ordered_producer(bootstrap_servers: str, compression: Compression = "none") -> Producer:
    """Keeps the order of each partition: without idempotence, a retried request lands after
    its successors, and a test's records would truly be late.

    A new one that has seen no topic yet, but was made at the call before: the client gets its
    producer id half a second after it was made, however fast the broker is.
    """
    wanted = bootstrap_servers, compression
    producer = _spare.pop(wanted, None)
    _spare.clear()
    _spare[wanted] = _idempotent(*wanted)
    return producer or _idempotent(*wanted)


def _idempotent(bootstrap_servers: str, compression: Compression) -> Producer:
    # Quiet: a broker may be gone at the end of a test, which is expected.
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 2,
            "compression.type": compression,
        }
    )


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Returns when it is gone. Another of its name may be there: brokers create their own."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "deletion", "log_level": 2}
    )
    with closing(reader), administration(bootstrap_servers) as admin:
        old = _topic_id(admin, topic)
        partitions = reader.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic].partitions
        places = [TopicPartition(topic, partition) for partition in partitions]
        admin.delete_topics([topic])[topic].result(ANSWER_TIMEOUT_S)
        # Leaders serve their partitions a little longer than metadata names the topic.
        eventually(
            lambda: _topic_id(admin, topic),
            lambda found: (
                found not in ("", old)
                or not (found or any(_is_served(reader, place) for place in places))
            ),
        )


def recreate_topic(bootstrap_servers: str, topic: str, partitions: int = 1) -> None:
    """Delete it and create it again, with another topic id."""
    delete_topic(bootstrap_servers, topic)
    eventually(lambda: _creates(bootstrap_servers, topic, partitions))


def add_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    """Returns when clients see them."""
    with administration(bootstrap_servers) as admin:
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(ANSWER_TIMEOUT_S)
        eventually(
            lambda: len(admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics[topic].partitions),
            lambda count: count == total,
        )


def set_topic(bootstrap_servers: str, topic: str, config: Mapping[str, str]) -> None:
    """Change settings of a topic; returns when the broker that is asked knows them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    with administration(bootstrap_servers) as admin:
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin.incremental_alter_configs([wanted])[resource].result(ANSWER_TIMEOUT_S)
        eventually(
            lambda: admin.describe_configs([resource])[resource].result(ANSWER_TIMEOUT_S),
            lambda found: all(found[name].value == value for name, value in config.items()),
        )


def find_topic(bootstrap_servers: str, topic: str) -> TopicMetadata | None:
    """As a plain client sees it; None if it does not exist."""
    with administration(bootstrap_servers) as admin:
        return admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics.get(topic)


def delete_before(bootstrap_servers: str, topic: str, partition: int, offset: int) -> None:
    """Move the log start, as retention would."""
    place = TopicPartition(topic, partition, offset)
    with administration(bootstrap_servers) as admin:
        admin.delete_records([place])[place].result(ANSWER_TIMEOUT_S)


def _topic_id(admin: AdminClient, topic: str) -> str:
    """Empty if there is no such topic."""
    asked = admin.describe_topics(TopicCollection([topic]))[topic]
    try:
        return str(asked.result(ANSWER_TIMEOUT_S).topic_id)
    except KafkaException as raised:
        if raised.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return ""


def _is_served(reader: Consumer, place: TopicPartition) -> bool:
    """Whether its leader, as the reader remembers it, still tells its offsets."""
    try:
        reader.get_watermark_offsets(place, ANSWER_TIMEOUT_S)
    except KafkaException as raised:
        if raised.args[0].code() not in FORGOTTEN:
            raise
        return False
    return True


def _creates(bootstrap_servers: str, topic: str, partitions: int) -> bool:
    """False while a topic of that name is still being deleted."""
    try:
        create_topic(bootstrap_servers, topic, partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def readable_to_the_end(bootstrap_servers: str, topic: str) -> bool:
    """No transaction is open on the output: both isolation levels end at the same place."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "ends",
                "isolation.level": isolation,
            }
        )
        partitions = consumer.list_topics(topic, 20).topics[topic].partitions
        ends.append(
            [
                consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1]
                for p in sorted(partitions)
            ]
        )
        consumer.close()
    return ends[0] == ends[1]


def end_of(bootstrap_servers: str, topic: str) -> int:
    """The ends of all partitions of a topic, added up."""
    with administration(bootstrap_servers) as admin:
        partitions = admin.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic].partitions
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {TopicPartition(topic, partition): latest for partition in partitions}
        told = admin.list_offsets(places).values()
        return sum(int(each.result(ANSWER_TIMEOUT_S).offset) for each in told)

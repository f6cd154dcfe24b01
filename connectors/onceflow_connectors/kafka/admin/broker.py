"""Look-ups, plain reads and plain writes: `contracts.connector.Broker` on librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    NewTopic,
    ResourceType,
)

from onceflow.clock import Deadline
from onceflow.contracts.connector import (
    Connection,
    OpenTransaction,
    Place,
    TopicInfo,
    TopicSpec,
)
from onceflow.contracts.record import Record
from onceflow.errors import ConfigError, DeadlineError
from onceflow_connectors.kafka.admin.administration import (
    HIGH_WATERMARK,
    LAST_STABLE,
    LOG_START,
    NEWEST,
    RETRY_PAUSE_S,
    Administration,
    answered,
    first_since,
    unless,
)
from onceflow_connectors.kafka.admin.reading import CommittedReader, first_timestamps
from onceflow_connectors.kafka.admin.transactions import open_transactions
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    failure,
    kafka_error,
    without_client_details,
)
from onceflow_connectors.kafka.client.librdkafka import open_client, producer_config

NO_ANSWER_S = 5.0
"""How long a person at a terminal waits for the first answer."""
ROOM_POLL_S = 0.1
"""Longest wait for a delivery report before a full queue is tried again."""


class KafkaBroker:
    """Implements `contracts.connector.Broker`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._administration = Administration(connection)

    def brokers(self, deadline: Deadline) -> int:
        """Count them. Gives up after `NO_ANSWER_S`, however long the deadline."""
        patience = deadline.clock.within(deadline.at_most_s(NO_ANSWER_S))
        return len(self._cluster(patience).nodes)

    def cluster_id(self, deadline: Deadline) -> str:
        """Return the id of the cluster, which no other cluster has. Gives up as `brokers`."""
        patience = deadline.clock.within(deadline.at_most_s(NO_ANSWER_S))
        return str(self._cluster(patience).cluster_id)

    def broker_config(self, deadline: Deadline) -> Mapping[str, str]:
        node = self._cluster(deadline).nodes[0]
        resource = ConfigResource(ResourceType.BROKER, str(node.id))
        return self._administration.config(resource, deadline)

    def topic(self, name: str, deadline: Deadline) -> TopicInfo | None:
        found = self._administration.topics([name], deadline).get(name)
        if found is None:
            return None
        resource = ConfigResource(ResourceType.TOPIC, name)
        return replace(found, config=self._administration.config(resource, deadline))

    def topic_id(self, name: str, deadline: Deadline) -> str | None:
        found = self._administration.topics([name], deadline)
        return found[name].topic_id if found else None

    def create_topic(self, spec: TopicSpec, deadline: Deadline) -> None:
        """Return when the leader of every partition answers for it."""
        wanted = NewTopic(spec.name, spec.partitions, spec.replication, config=dict(spec.config))

        def request(client: AdminClient, timeout_s: float) -> None:
            created = client.create_topics([wanted], request_timeout=timeout_s)
            answered(created[spec.name], timeout_s)

        create = unless(request, "TOPIC_ALREADY_EXISTS")
        self._administration.ask("cannot create a topic", spec.name, create, deadline)
        while not self.offsets(spec.name, deadline):
            deadline.check("a new topic is not visible yet", subject=spec.name)
            deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        places = self._places(topic, deadline)
        starts, stable_ends, ends = (
            self._administration.offsets(places, bound, deadline)
            for bound in (LOG_START, LAST_STABLE, HIGH_WATERMARK)
        )
        if starts is None or stable_ends is None or ends is None:  # deleted meanwhile
            return {}
        return {
            place[1]: (starts[place].offset, stable_ends[place].offset, ends[place].offset)
            for place in places
        }

    def group_offsets(self, group: str, deadline: Deadline) -> Mapping[Place, int]:

        def request(client: AdminClient, timeout_s: float) -> Mapping[Place, int]:
            futures = client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)],
                require_stable=True,
                request_timeout=timeout_s,
            )
            found = answered(futures[group], timeout_s).topic_partitions
            return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

        answer = unless(request, "GROUP_ID_NOT_FOUND")
        what = "cannot look up the offsets of a group"
        return self._administration.ask(what, group, answer, deadline) or {}

    def first_timestamps(
        self, topic: str, offsets: Mapping[int, int], deadline: Deadline
    ) -> Mapping[int, int]:
        return first_timestamps(self._connection, topic, offsets, deadline) if offsets else {}

    def offsets_since(self, topic: str, at_ms: int, deadline: Deadline) -> Mapping[int, int]:
        places = self._places(topic, deadline)
        found = self._administration.offsets(places, first_since(at_ms), deadline) or {}
        return {p: at.offset for (_, p), at in found.items() if at.offset >= 0}

    def newest_timestamps(self, topic: str, deadline: Deadline) -> Mapping[int, int]:
        places = self._places(topic, deadline)
        found = self._administration.offsets(places, NEWEST, deadline) or {}
        return {p: at.timestamp_ms for (_, p), at in found.items() if at.timestamp_ms >= 0}

    def open_transactions(
        self, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> Sequence[OpenTransaction]:
        # kafka-python leaves sockets open if no broker answers, and takes longer to notice.
        self.brokers(deadline)
        return open_transactions(self._connection, topic, partitions, deadline)

    def group_members(self, group: str, deadline: Deadline) -> int:

        def request(client: AdminClient, timeout_s: float) -> int:
            futures = client.describe_consumer_groups([group], request_timeout=timeout_s)
            return len(answered(futures[group], timeout_s).members)

        answer = unless(request, "GROUP_ID_NOT_FOUND")
        return self._administration.ask("cannot look up a group", group, answer, deadline) or 0

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[Record]:
        reader = CommittedReader(self._connection)
        try:
            for partition in sorted(ranges):
                for message in reader.read(topic, partition, ranges[partition], deadline):
                    yield _plain(topic, message)
        finally:
            reader.close()

    def publish(
        self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]], deadline: Deadline
    ) -> int:
        reports = _Reports()
        producer = open_client(Producer, producer_config(self._connection), on_delivery=reports)
        try:
            _queue(producer, topic, records, deadline)
            producer.flush(deadline.remaining_s())
        except CLIENT_ERRORS as raised:
            reports.error = reports.error or kafka_error(raised)
        if reports.error is not None:
            then = f"{reports.acked} of {len(records)} records were written"
            raise failure(
                reports.error, Operation.PRODUCE, "cannot write", subject=topic, then=then
            )
        if reports.acked < len(records):
            raise DeadlineError(
                "not every record was acknowledged",
                subject=topic,
                expected=f"{len(records)} within {deadline.budget_s:g} s",
                found=str(reports.acked),
            )
        return reports.acked

    def close(self) -> None:
        self._administration.close()

    def _places(self, topic: str, deadline: Deadline) -> Sequence[Place]:
        """Return the partitions of a topic; none if it does not exist."""
        found = self._administration.topics([topic], deadline).get(topic)
        return found.places if found else ()

    def _cluster(self, deadline: Deadline) -> DescribeClusterResult:
        def request(client: AdminClient, timeout_s: float) -> DescribeClusterResult:
            asked = client.describe_cluster(request_timeout=timeout_s)
            cluster: DescribeClusterResult = answered(asked, timeout_s)
            return cluster

        address = self._connection.bootstrap_servers
        try:
            return self._administration.ask("no broker answers", address, request, deadline)
        except DeadlineError as error:
            if self._administration.is_turned_away:
                raise ConfigError(
                    "no Kafka broker lets us in",
                    subject=address,
                    expected="credentials and certificates that the brokers accept",
                    found=error.found,
                    then="correct `sasl` and `tls` in the settings",
                ) from error
            # Not a ConfigError: all brokers may be down, and come back.
            raise DeadlineError(
                "no Kafka broker answers",
                subject=address,
                expected=error.expected,
                found=without_client_details(error.found),
                then="start a broker there, or correct the address",
            ) from error


class _Reports:
    """Delivery callback that counts."""

    def __init__(self) -> None:
        self.acked = 0
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked += 1
        elif self.error is None:
            self.error = error


def _queue(
    producer: Producer,
    topic: str,
    records: Sequence[tuple[bytes | None, bytes | None]],
    deadline: Deadline,
) -> None:
    for key, value in records:
        while True:  # until there is room, or the deadline is over
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                deadline.check("no room in the client's queue", subject=topic)
                producer.poll(deadline.at_most_s(ROOM_POLL_S))


def _plain(topic: str, message: Message) -> Record:
    return Record(
        topic=topic,
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
    )

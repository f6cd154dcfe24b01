"""The consumer on confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import ClusterMetadata, TopicMetadata

from onceflow.contracts.record import Record
from onceflow.errors import (
    AbortableError,
    ConfigError,
    InvariantError,
    OnceflowError,
    RetriableError,
)
from onceflow_connectors.consumer.client import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    Subscription,
    consequence,
    patiently,
)
from onceflow_connectors.consumer.filter import foreign_state
from onceflow_connectors.consumer.holdings import Holdings
from onceflow_connectors.consumer.reader import GroupConsumer
from onceflow_connectors.consumer.records import Partition, Position, name_of

FIRST_ANSWER_TIMEOUT_S = 5.0
"""For the first request to a group, which is repeated."""
JOIN_SLICE_S = 0.1
NO_OFFSETS = "the group's offsets cannot be read"

_DEFAULTS: Mapping[str, Any] = {
    "client.id": "onceflow-consumer",
    # Errors reach us as errors.
    "log_level": 2,
}

_OWN: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    # Never "latest", which skips. A position that no longer exists is noticed by its offset.
    "auto.offset.reset": "earliest",
    # What a rebalance does to positions is decided in one place, for whole assignments.
    "partition.assignment.strategy": "range,roundrobin",
    "group.protocol": "classic",
}

_VERIFIED: Mapping[str, Any] = {
    "enable.ssl.certificate.verification": True,
    "ssl.endpoint.identification.algorithm": "https",
    "enable.sasl.oauthbearer.unsecure.jwt": False,
}


_record: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, Record)
"""As `Record._make`, in half of the time. Untyped: the client's types allow a None that only errors
have."""


class ConfluentClient:
    """Implements `client.Client` with librdkafka."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._consumer: confluent_kafka.Consumer | None = None
        self._last_error = ""
        self._holdings: Holdings | None = None
        self._unplaced: Sequence[Partition] | None = None
        """Partitions that are assigned, but not read until their start is known."""
        self._has_rebalanced = False

    def start(self, holdings: Holdings) -> None:
        wanted = self._subscription
        settings = {
            **_DEFAULTS,
            **wanted.checked_properties(_OWN, _VERIFIED),
            "bootstrap.servers": wanted.bootstrap_servers,
            "group.id": wanted.group,
        }
        with mapping_errors("the consumer's settings were refused"):
            consumer = confluent_kafka.Consumer({**settings, "error_cb": self._remember})
        self._consumer = consumer
        self._check_group(consumer, self._check_topics(consumer))

        self._holdings = holdings
        consumer.subscribe(
            list(wanted.topics),
            on_assign=self._on_assign,
            on_revoke=lambda *_: self._let_go(holdings.revoked),
            on_lost=lambda *_: self._let_go(holdings.lost),
        )

    def poll(self, timeout_s: float, most: int) -> Iterable[Record]:
        """Wait for `most` records, or for the time that is given.

        What came in the call in which a rebalance happened is not of what is held after it. It is
        read again: partitions are placed only after the call.
        """
        consumer = self._running()
        self._has_rebalanced = False
        if self._holdings is None or not self._holdings.partitions():
            # An assignment is placed after the call in which it comes, so let that soon be over.
            timeout_s = min(timeout_s, JOIN_SLICE_S)
        messages = consumer.consume(most, timeout_s if self._unplaced is None else 0)
        self._place(consumer)
        if self._has_rebalanced:
            return ()
        return _records(messages)

    def _on_assign(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """A rebalance ended."""
        if self._consumer is None:
            # Closing serves an assignment that is under way, but no longer answers requests.
            return
        self._has_rebalanced = True
        self._unplaced = [(p.topic, p.partition) for p in partitions]
        # Otherwise the client would read from where it likes.
        consumer.assign([])

    def _let_go(self, tell: Callable[[], None]) -> None:
        self._has_rebalanced = True
        self._unplaced = None
        tell()

    def _place(self, consumer: confluent_kafka.Consumer) -> None:
        """Start to read what was assigned. A failure is tried again at the next poll."""
        if self._unplaced is None or self._holdings is None:
            return
        starts = self._holdings.assigned(self._unplaced)
        consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING if start is None else start)
                for (topic, number), start in starts.items()
            ]
        )
        self._unplaced = None

    def stored(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        return {(e.topic, e.partition): _position(e) for e in self._committed(partitions)}

    def topic_names(self) -> Iterable[str]:
        with mapping_errors("the topics cannot be listed"):
            found: ClusterMetadata = self._running().list_topics(timeout=CONNECT_TIMEOUT_S)
        return found.topics

    def partitions(self) -> Sequence[Partition]:
        return self._check_topics(self._running())

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        wanted = TopicPartition(*partition)
        with mapping_errors("the partition's bounds cannot be read", name_of(partition)):
            start, end = self._running().get_watermark_offsets(wanted, timeout=ANSWER_TIMEOUT_S)
        return int(start), int(end)

    def commit(self, positions: Sequence[Position]) -> None:
        wanted = [TopicPartition(p.topic, p.partition, p.offset, p.state) for p in positions]
        with mapping_errors("offsets were not committed", self._subscription.group):
            answered = self._running().commit(offsets=wanted, asynchronous=False)
        _check_each(answered, "an offset was not committed")

    def seek(self, partition: Partition, offset: int) -> None:
        with mapping_errors("seek failed", name_of(partition)):
            self._running().seek(TopicPartition(*partition, offset))

    def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._unplaced = None
        if consumer is not None:
            consumer.close()

    def _running(self) -> confluent_kafka.Consumer:
        if self._consumer is None:
            raise InvariantError("the client was not started")
        return self._consumer

    def _check_topics(self, consumer: confluent_kafka.Consumer) -> list[Partition]:
        """Ask for each topic by name: a list of all would need the right to see all.

        Returns:
            Their partitions.
        """
        missing, partitions = [], []
        for topic in self._subscription.topics:
            found = self._describe(consumer, topic=topic)[topic]
            if found.error is not None:
                missing.append(f"{topic} ({found.error.str()})")
            partitions += [(topic, number) for number in found.partitions]
        self._subscription.refuse_missing(missing)
        return partitions

    def _check_group(self, consumer: confluent_kafka.Consumer, ours: list[Partition]) -> None:
        """Look at other topics only if the group has no offset of our topics.

        Not by the admin client's list_consumer_group_offsets: librdkafka 2.16 crashes the process
        when the answer says that the coordinator has moved, as it usually does on a fresh cluster.
        """
        if patiently(lambda: self._first_committed(consumer, ours)):
            return
        topics = self._describe(consumer).items()
        every = [(name, number) for name, topic in topics for number in topic.partitions]
        found = patiently(lambda: self._first_committed(consumer, every))
        self._subscription.check_group(entry.topic for entry in found)

    def _first_committed(
        self, consumer: confluent_kafka.Consumer, partitions: list[Partition]
    ) -> list[TopicPartition]:
        """As `_committed`, before there is a subscription.

        A request to a group that we may not read is never answered. The client reports the reason
        to the next poll, and has nothing else to report at this point.
        """
        try:
            return self._committed(partitions, FIRST_ANSWER_TIMEOUT_S)
        except RetriableError:
            told = consumer.poll(0)
            error = told.error() if told is not None else None
            if error is not None and issubclass(consequence(error.name()), ConfigError):
                raise mapped_error(error, NO_OFFSETS, self._subscription.group) from None
            raise

    def _describe(
        self, consumer: confluent_kafka.Consumer, **selection: str
    ) -> Mapping[str, TopicMetadata]:
        try:
            found: ClusterMetadata = consumer.list_topics(timeout=CONNECT_TIMEOUT_S, **selection)
        except KafkaException as error:
            consumer.poll(0)  # lets librdkafka report the cause through error_cb
            raise self._subscription.unreachable(self._last_error) from error
        return found.topics

    def _committed(
        self, partitions: Sequence[Partition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[TopicPartition]:
        """The partitions that have a committed offset."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        with mapping_errors(NO_OFFSETS, self._subscription.group):
            found = self._running().committed(wanted, timeout=timeout_s)
        _check_each(found, "an offset cannot be read")
        return [entry for entry in found if entry.offset >= 0]

    def _remember(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # which says nothing
            self._last_error = error.str()


class Consumer(GroupConsumer):
    """Reads Onceflow's output once, with librdkafka."""

    client_of = staticmethod(ConfluentClient)


def _records(messages: Sequence[Message]) -> Iterator[Record]:
    """Convert, a field of all records at a time: that takes half as long.

    Raises:
        OnceflowError: after the records, if reading failed.
    """
    good = messages
    if any(map(Message.error, messages)):
        good = [message for message in messages if message.error() is None]
    yield from map(
        _record,
        zip(
            map(Message.topic, good),
            map(Message.partition, good),
            map(Message.offset, good),
            [at_ms for _, at_ms in map(Message.timestamp, good)],
            map(Message.key, good),
            map(Message.value, good),
            [tuple(each) if each else () for each in map(Message.headers, good)],
            strict=True,
        ),
    )
    for message in messages:
        error = message.error()
        if error is not None:
            kind = consequence(error.name())
            if not issubclass(kind, RetriableError | AbortableError):
                raise mapped_error(error, "reading failed", str(message.topic() or ""))


def _position(entry: TopicPartition) -> Position:
    """Convert a committed offset. The library decodes the metadata only now."""
    try:
        state = entry.metadata or ""
    except UnicodeDecodeError as error:  # it has read past the end; see METADATA_END
        name = name_of((entry.topic, entry.partition))
        raise foreign_state("text without a zero byte at its end", name) from error
    return Position(entry.topic, entry.partition, entry.offset, state)


def _check_each(answered: Iterable[TopicPartition], what: str) -> None:
    for entry in answered:
        if entry.error is not None:
            raise mapped_error(entry.error, what, name_of((entry.topic, entry.partition)))


def mapped_error(error: KafkaError, what: str, subject: str = "") -> OnceflowError:
    """Turn an error of librdkafka into our own."""
    return consequence(error.name())(what, subject=subject, found=f"{error.name()}: {error.str()}")


@contextmanager
def mapping_errors(what: str, subject: str = "") -> Iterator[None]:
    """Turn errors of librdkafka that are raised inside into our own."""
    try:
        yield
    except KafkaException as error:
        raise mapped_error(error.args[0], what, subject) from error

"""The consumer on kafka-python: no compiled client, at a twentieth of the speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.net.compat import KafkaNetClient
from kafka.structs import OffsetAndMetadata

from onceflow.contracts.record import Record
from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    InvariantError,
    OnceflowError,
    RetriableError,
)
from onceflow_connectors.consumer.client import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    METADATA_END,
    Subscription,
    consequence,
    patiently,
)
from onceflow_connectors.consumer.holdings import Holdings
from onceflow_connectors.consumer.reader import GroupConsumer
from onceflow_connectors.consumer.records import Partition, Position, name_of

_DEFAULTS: Mapping[str, Any] = {
    "client_id": "onceflow-consumer",
    "bootstrap_timeout_ms": int(CONNECT_TIMEOUT_S * 1000),
    "allow_auto_create_topics": False,
}

_OWN: Mapping[str, Any] = {
    # kafka-python's own default is read_uncommitted.
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
    # Never "latest", which skips. A position that no longer exists is noticed by its offset.
    "auto_offset_reset": "earliest",
    # What a rebalance does to positions is decided in one place, for whole assignments. The same
    # as the other flavour's, so that members of both may share a group.
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
    "key_deserializer": None,
    "value_deserializer": None,
}

_VERIFIED: Mapping[str, Any] = {"ssl_check_hostname": True, "ssl_context": None}
"""The caller's own SSL context might verify nothing."""

LOCAL_ERRORS: Mapping[type[kafka_errors.KafkaError], type[OnceflowError]] = {
    kafka_errors.RetriableError: RetriableError,
    kafka_errors.QuotaViolationError: RetriableError,
    kafka_errors.CommitFailedError: AbortableError,
    kafka_errors.LogTruncationError: CorruptionError,
    kafka_errors.KafkaConfigurationError: ConfigError,
    kafka_errors.UnrecognizedBrokerVersion: ConfigError,
    kafka_errors.UnsupportedCodecError: ConfigError,
}
"""kafka-python's own errors, subclasses included -> our class; every other is an InvariantError."""

_NAMES: Mapping[str, str] = {
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "INVALID_FETCH_SIZE": "INVALID_MSG_SIZE",
    "MESSAGE_SIZE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "STALE_CONTROLLER_EPOCH": "STALE_CTRL_EPOCH",
    "INVALID_TOPIC": "TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
"""Codes that kafka-python calls by another name than `error_codes`."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Notes what to do. Runs in the client's own thread, which must not wait for answers.

    At most three events per rebalance, and every poll empties the queue.
    """

    def __init__(self, client: KafkaPythonClient, holdings: Holdings) -> None:
        self._client = client
        self._holdings = holdings

    def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        self._client.events.append(self._holdings.revoked)

    def on_partitions_lost(self, lost: Iterable[Partition]) -> None:
        self._client.events.append(self._holdings.lost)

    def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        partitions = [(p[0], p[1]) for p in assigned]
        self._client.events.append(lambda: self._client.place(self._holdings.assigned(partitions)))


class _Join:
    """A request to join the group, which looks unanswered until its answer is taken.

    kafka-python (3.0.12) asks again when the answer came between two polls. That rebalances the
    group, whose other members then ask again: members that do more than poll may never settle.
    """

    def __init__(self, request: Any) -> None:
        self.is_done = False
        self.add_callback = request.add_callback
        self._request = request

    def add_errback(self, tell: Callable[[Exception], object]) -> None:
        """Called last by a poll, which takes the answer if there is one."""
        self.is_done = self._request.is_done
        self._request.add_errback(tell)


def _keep_answer(consumer: KafkaConsumer) -> None:
    """Make the next poll take the answer to a join. Changes nothing if it is kept elsewhere.

    kafka-python (3.0.12) forgets a join if its reason is gone before the answer is taken: the
    leader joins again because partitions were added, and assigns them. It sends no heartbeats
    until then, so it would be expelled and hold nothing for good. Java counts a pending join as a
    reason to join (`rejoinNeededOrPending`).
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    request = getattr(coordinator, "_join_task", None)
    if request is None:
        return
    coordinator.rejoin_needed = True
    if not isinstance(request, _Join):
        coordinator._join_task = _Join(request)  # noqa: SLF001  no public way


class KafkaPythonClient:
    """Implements `client.Client` with kafka-python."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._consumer: KafkaConsumer | None = None
        self.events: deque[Callable[[], None]] = deque()

    def start(self, holdings: Holdings) -> None:
        wanted = self._subscription
        connection = {
            **_DEFAULTS,
            **wanted.checked_properties(_OWN, _VERIFIED),
            "bootstrap_servers": wanted.bootstrap_servers.split(","),
        }
        self._consumer = self._connected({**connection, "group_id": wanted.group})
        with mapping_errors("the consumer cannot start", wanted.group):
            partitions = {t: self._consumer.partitions_for_topic(t) for t in wanted.topics}
            wanted.refuse_missing([topic for topic, known in partitions.items() if not known])
            wanted.check_group(self._committed_topics(connection))
            self._consumer.subscribe(list(wanted.topics), listener=_Listener(self, holdings))

    def poll(self, timeout_s: float, most: int) -> Iterable[Record]:
        """Return at most `max_poll_records` (500), whatever `most` is, and wait for the first."""
        polled = {}
        consumer = self._running()
        _keep_answer(consumer)
        try:
            with mapping_errors("reading failed", self._subscription.group):
                polled = consumer.poll(timeout_ms=int(timeout_s * 1000))
        except (RetriableError, AbortableError):
            pass  # the client goes on by itself
        if self._settle():
            return ()  # every partition was positioned just now and is read from there
        return (_record(raw) for records in polled.values() for raw in records)

    def stored(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        found = {}
        with mapping_errors("the group's offsets cannot be read", self._subscription.group):
            for topic, number in partitions:
                entry = self._running().committed(
                    kafka.TopicPartition(topic, number),
                    metadata=True,
                    timeout_ms=int(ANSWER_TIMEOUT_S * 1000),
                )
                if entry is not None:
                    state = (entry.metadata or "").removesuffix(METADATA_END)
                    found[topic, number] = Position(topic, number, entry.offset, state)
        return found

    def topic_names(self) -> Iterable[str]:
        with mapping_errors("the topics cannot be listed", self._subscription.group):
            found: set[str] = self._running().topics()
            return found

    def partitions(self) -> Sequence[Partition]:
        topics = self._subscription.topics
        with mapping_errors("the topics' partitions cannot be read", ", ".join(topics)):
            known = {topic: self._running().partitions_for_topic(topic) for topic in topics}
        return [(topic, number) for topic in topics for number in sorted(known[topic] or ())]

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        wanted = kafka.TopicPartition(*partition)
        with mapping_errors("the partition's bounds cannot be read", name_of(partition)):
            start = self._running().beginning_offsets([wanted])[wanted]
            end = self._running().end_offsets([wanted])[wanted]
        return int(start), int(end)

    def commit(self, positions: Sequence[Position]) -> None:
        if self.events:  # an interrupted poll: who holds what is not settled
            raise RetriableError(
                "offsets cannot be committed during a rebalance", then="poll, then commit again"
            )
        offsets = {
            kafka.TopicPartition(p.topic, p.partition): OffsetAndMetadata(
                p.offset, p.state + METADATA_END, leader_epoch=-1
            )
            for p in positions
        }
        with mapping_errors("offsets were not committed", self._subscription.group):
            self._running().commit(offsets, timeout_ms=int(ANSWER_TIMEOUT_S * 1000))

    def seek(self, partition: Partition, offset: int) -> None:
        self._running().seek(kafka.TopicPartition(*partition), offset)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close(autocommit=False)
            self._consumer = None
            self.events.clear()

    def _connected(self, settings: Mapping[str, Any]) -> KafkaConsumer:
        """Make a consumer that has reached a broker. Stop its thread if it cannot."""
        with ExitStack() as undo:

            def network(**configs: Any) -> KafkaNetClient:
                client = KafkaNetClient(**configs)
                undo.callback(client.close)
                return client

            try:
                consumer = KafkaConsumer(**settings, kafka_client=network)
            except kafka_errors.KafkaTimeoutError as error:
                raise self._subscription.unreachable(str(error)) from error
            except (kafka_errors.KafkaError, ValueError) as error:
                what = "the consumer's settings were refused"
                raise ConfigError(what, found=str(error)) from error
            undo.pop_all()
            return consumer

    def _running(self) -> KafkaConsumer:
        if self._consumer is None:
            raise InvariantError("the client was not started")
        return self._consumer

    def _committed_topics(self, connection: Mapping[str, Any]) -> set[str]:
        group = self._subscription.group
        known = KafkaAdminClient.DEFAULT_CONFIG
        admin = KafkaAdminClient(**{k: v for k, v in connection.items() if k in known})

        def look_up() -> set[str]:
            with mapping_errors("the group's offsets cannot be read", group):
                return {partition.topic for partition in admin.list_group_offsets([group])[group]}

        try:
            return patiently(look_up)
        finally:
            admin.close()

    def _settle(self) -> bool:
        """Do what the listener noted; return whether there was anything."""
        had_events = bool(self.events)
        while self.events:
            self.events[0]()
            self.events.popleft()  # only now: a failure is tried again
        return had_events

    def place(self, starts: Mapping[Partition, int | None]) -> None:
        """Start to read what was assigned."""
        consumer = self._running()
        for partition in consumer.assignment():
            start = starts.get((partition.topic, partition.partition))
            if start is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, start)


class Consumer(GroupConsumer):
    """Reads Onceflow's output once, with kafka-python."""

    client_of = staticmethod(KafkaPythonClient)


def _record(raw: Any) -> Record:
    return Record(
        raw.topic, raw.partition, raw.offset, raw.timestamp, raw.key, raw.value, tuple(raw.headers)
    )


def code_of(error: kafka_errors.BrokerResponseError) -> str:
    """Return the name of a broker's code in `error_codes`."""
    return _NAMES.get(error.message, error.message)


def _consequence(error: kafka_errors.KafkaError) -> type[OnceflowError]:
    if isinstance(error, kafka_errors.CommitFailedError) and error.args:
        reason = error.args[0]
        if isinstance(reason, kafka_errors.BrokerResponseError):
            return _consequence(reason)
    if isinstance(error, kafka_errors.BrokerResponseError):
        return consequence(code_of(error))
    known = (LOCAL_ERRORS[kind] for kind in type(error).__mro__ if kind in LOCAL_ERRORS)
    return next(known, InvariantError)


@contextmanager
def mapping_errors(what: str, subject: str) -> Iterator[None]:
    """Turn errors of kafka-python that are raised inside into our own."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        found = f"{type(error).__name__}: {error}"
        raise _consequence(error)(what, subject=subject, found=found) from error

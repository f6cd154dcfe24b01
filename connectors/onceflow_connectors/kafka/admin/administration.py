"""Asks brokers, and asks again while the trouble is a passing one and time is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import NamedTuple, TypeAlias, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, TopicDescription

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, Place, TopicInfo
from onceflow.errors import DeadlineError
from onceflow_connectors.error_codes import Nature
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    describe,
    failure,
    is_passing,
    kafka_error,
    nature_of,
)
from onceflow_connectors.kafka.client.librdkafka import admin_config, open_client

FIRST_PATIENCE_S, MAX_PATIENCE_S = 1.0, 8.0
"""Time-out of the first request, which may go to a leader that has just died. It doubles with each
request, so that a slow broker can answer at last."""
MIN_PATIENCE_S = 0.5
"""Shortest time-out. librdkafka looks for partitions' leaders in the calling thread; if the time is
up before that has ended, its own thread frees what the caller still writes to."""
LATE_ANSWER_S = 2.0
"""Extra time for a client that keeps its time-out, on a busy machine."""
RETRY_PAUSE_S = 0.05
"""Pause after a request that failed at once."""

_T = TypeVar("_T")


Bound: TypeAlias = tuple[OffsetSpec, IsolationLevel]
"""Which offset of a partition to look up."""

LOG_START: Bound = OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED  # type: ignore[no-untyped-call]
"""First offset that still exists."""
LAST_STABLE: Bound = OffsetSpec.latest(), IsolationLevel.READ_COMMITTED  # type: ignore[no-untyped-call]
"""First offset that may not be decided yet."""
HIGH_WATERMARK: Bound = OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED  # type: ignore[no-untyped-call]
"""Next offset to be written."""
NEWEST: Bound = OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED  # type: ignore[no-untyped-call]
"""The record with the highest timestamp, decided or not."""


def first_since(timestamp_ms: int) -> Bound:
    """Return the bound of the first record that is not older, decided or not."""
    return OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED


class Spot(NamedTuple):
    """An offset and a timestamp in a partition: both negative if there is no such record."""

    offset: int
    timestamp_ms: int


class Administration:
    """One administrative client, made at the first request. May be shared by threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: AdminClient | None = None
        self._trouble = _Trouble()

    def ask(
        self,
        what: str,
        subject: str,
        request: Callable[[AdminClient, float], _T],
        deadline: Deadline,
    ) -> _T:
        """Make a request, which gets a time-out in seconds, until it is answered.

        `what` says in one clause what fails. The first try may exceed the deadline by
        MIN_PATIENCE_S.

        Raises:
            DeadlineError: no answer in time.
            ConfigError: refused for good.
        """
        patience_s = FIRST_PATIENCE_S
        while True:
            try:
                return request(self._open(), max(MIN_PATIENCE_S, deadline.at_most_s(patience_s)))
            except CLIENT_ERRORS as raised:
                error = kafka_error(raised)
            if not is_passing(error):
                raise failure(error, Operation.ADMINISTER, what, subject=subject)
            if deadline.remaining_s() < MIN_PATIENCE_S:
                raise DeadlineError(
                    what,
                    subject=subject,
                    expected=f"an answer within {deadline.budget_s:g} s",
                    found=self._trouble_text() or describe(error),
                )
            # A client asks the leader that it remembers for minutes, even if that is dead.
            self._leave_client()
            patience_s = min(2 * patience_s, MAX_PATIENCE_S)
            deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))

    def topic_names(self, deadline: Deadline) -> Collection[str]:
        """Return every topic that we may see."""

        def request(client: AdminClient, timeout_s: float) -> Collection[str]:
            return client.list_topics(timeout=timeout_s).topics.keys()

        return self.ask("cannot list topics", "all topics", request, deadline)

    def topics(self, names: Collection[str], deadline: Deadline) -> Mapping[str, TopicInfo]:
        """Return those of the topics that exist, without their settings, in one request."""
        if not names:
            return {}

        def request(client: AdminClient, timeout_s: float) -> Mapping[str, TopicInfo]:
            wanted = TopicCollection(list(names))
            answers = client.describe_topics(wanted, request_timeout=timeout_s)
            found = [_topic(name, answers[name], timeout_s) for name in sorted(answers)]
            return {topic.name: topic for topic in found if topic is not None}

        return self.ask("cannot look up topics", ", ".join(sorted(names)), request, deadline)

    def config(self, resource: ConfigResource, deadline: Deadline) -> Mapping[str, str]:
        """Return the effective settings of a topic or broker, without those that are secret."""

        def request(client: AdminClient, timeout_s: float) -> Mapping[str, str]:
            futures = client.describe_configs([resource], request_timeout=timeout_s)
            entries = answered(futures[resource], timeout_s).values()
            return {entry.name: entry.value for entry in entries if entry.value is not None}

        return self.ask("cannot read settings", resource.name, request, deadline)

    def offsets(
        self, places: Iterable[Place], bound: Bound, deadline: Deadline
    ) -> Mapping[Place, Spot] | None:
        """Return what each leader knows, in one request. None if one of the topics is gone.

        Waits for a partition that has no leader.
        """
        spec, isolation = bound
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}
        topics = {place.topic for place in wanted}
        subject = ", ".join(sorted(topics))

        def request(client: AdminClient, timeout_s: float) -> Mapping[Place, Spot]:
            futures = client.list_offsets(
                wanted, isolation_level=isolation, request_timeout=timeout_s
            )
            answers = {place: answered(answer, timeout_s) for place, answer in futures.items()}
            # What the client gives, without an error, if a leader does not answer in time.
            if any(answer.offset == OFFSET_INVALID for answer in answers.values()):
                raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))
            return {
                (place.topic, place.partition): Spot(answer.offset, answer.timestamp)
                for place, answer in answers.items()
            }

        answer = unless(request, "_NOENT", "UNKNOWN_TOPIC_OR_PART")
        while (found := self.ask("cannot look up offsets", subject, answer, deadline)) is None:
            if topics - self.topics(topics, deadline).keys():
                return None
            deadline.check("a partition has no leader", subject=subject)
            deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))
        return found

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            _close(client)

    def _leave_client(self) -> None:
        """Close the client in a thread: one that did not keep its time-out may not end either."""
        client, self._client = self._client, None
        if client is not None:
            Thread(target=_close, args=[client], name="admin-close", daemon=True).start()

    @property
    def is_turned_away(self) -> bool:
        """Whether waiting does not cure the newest trouble of the connection."""
        return self._trouble.nature is Nature.REFUSED

    def _trouble_text(self) -> str:
        self._open().poll(0)
        return self._trouble.text

    def _open(self) -> AdminClient:
        if self._client is None:
            settings = admin_config(self._connection)
            self._client = open_client(AdminClient, settings, error_cb=self._trouble)
        return self._client


def _close(client: AdminClient) -> None:
    # Not left to Python's cycle collector, which may run in the client's own thread: there
    # librdkafka aborts the process (confluent-kafka-python, pull request 2131).
    with client:
        pass


def answered(future: Future[_T], timeout_s: float) -> _T:
    """Return the answer to a request that was made with this time-out.

    librdkafka does not always keep it: a driver that had been frozen while a broker died waited for
    a description of a topic forever.

    Raises:
        KafkaException: as the request; `_TIMED_OUT` also if there is no answer in time.
    """
    try:
        return future.result(timeout_s + LATE_ANSWER_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001


def _topic(name: str, answer: Future[TopicDescription], timeout_s: float) -> TopicInfo | None:
    """Return a topic, or None if it does not exist."""
    try:
        found = answered(answer, timeout_s)
    except KafkaException as raised:
        if kafka_error(raised).name() == "UNKNOWN_TOPIC_OR_PART":
            return None
        raise
    return TopicInfo(
        name=name,
        topic_id=str(found.topic_id),
        partitions=len(found.partitions),
        replication=min((len(partition.replicas) for partition in found.partitions), default=0),
        in_sync=min((len(partition.isr) for partition in found.partitions), default=0),
        is_internal=found.is_internal,
    )


def unless(
    request: Callable[[AdminClient, float], _T], *names: str
) -> Callable[[AdminClient, float], _T | None]:
    """Return the same request, which answers None instead of failing with one of these codes."""

    def answer(client: AdminClient, timeout_s: float) -> _T | None:
        try:
            return request(client, timeout_s)
        except CLIENT_ERRORS as raised:
            if kafka_error(raised).name() in names:
                return None
            raise

    return answer


class _Trouble:
    """Error callback. Keeps the newest trouble that says more than "all brokers are down"."""

    def __init__(self) -> None:
        self.text = ""
        self.nature: Nature | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.text, self.nature = describe(error), nature_of(error)

"""Asks brokers, and asks again until the deadline while an answer is a passing trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from enum import Enum, auto
from threading import Thread
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicDescription,
)

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.errors import DeadlineError
from onceflow_connectors.error_codes import Nature
from onceflow_connectors.kafka.client.clients import open_admin
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    describe,
    failure,
    is_passing,
    kafka_error,
    nature_of,
)
from onceflow_connectors.kafka.client.properties import admin_config

FIRST_PATIENCE_S, MAX_PATIENCE_S = 1.0, 8.0
"""For the first request, which may go to a leader that has just died; doubled for each next one,
because a slow broker must be able to answer at last."""
MIN_PATIENCE_S = 0.5
"""No request is given less. librdkafka looks for partitions' leaders in the calling thread; when
the time is up before that has ended, its own thread frees what the caller still writes to."""
LATE_ANSWER_S = 2.0
"""For a client that keeps its time-out, on a busy machine."""
RETRY_PAUSE_S = 0.05
"""Between two requests of which the first failed at once."""

_T = TypeVar("_T")


class Bound(Enum):
    """An end of what a partition holds."""

    LOG_START = auto()
    """First offset that still exists."""
    LAST_STABLE = auto()
    """First offset that may not be decided yet."""
    HIGH_WATERMARK = auto()
    """Next offset to be written."""


_BOUNDS: Mapping[Bound, tuple[OffsetSpec, IsolationLevel]] = {
    Bound.LOG_START: (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),  # type: ignore[no-untyped-call]
    Bound.LAST_STABLE: (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),  # type: ignore[no-untyped-call]
    Bound.HIGH_WATERMARK: (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),  # type: ignore[no-untyped-call]
}


class Administration:
    """One administrative client, made at the first question. May be shared by threads."""

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
        """Make a request until it is answered.

        Args:
            what: what fails if it fails, in one clause.
            subject: on which topic, group or address.
            request: makes the request with a time-out in seconds and returns its answer.
            deadline: for all tries. The first one may exceed it by MIN_PATIENCE_S.

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
            # A client asks the leader that it remembers for minutes, though it be dead.
            self._leave_client()
            patience_s = min(2 * patience_s, MAX_PATIENCE_S)
            deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))

    def describe_topic(self, name: str, deadline: Deadline) -> TopicDescription | None:
        """Partitions and id of a topic, or None if it does not exist."""

        def request(client: AdminClient, timeout_s: float) -> TopicDescription:
            futures = client.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
            description: TopicDescription = answered(futures[name], timeout_s)
            return description

        return self.ask(
            "cannot look up a topic",
            name,
            unless(request, "UNKNOWN_TOPIC_OR_PART"),
            deadline,
        )

    def config(self, resource: ConfigResource, deadline: Deadline) -> Mapping[str, str]:
        """Effective settings of a topic or broker, without those that are kept secret."""

        def request(client: AdminClient, timeout_s: float) -> Mapping[str, str]:
            futures = client.describe_configs([resource], request_timeout=timeout_s)
            entries = answered(futures[resource], timeout_s).values()
            return {entry.name: entry.value for entry in entries if entry.value is not None}

        return self.ask("cannot read settings", resource.name, request, deadline)

    def offsets(
        self, topic: str, partitions: Iterable[int], bound: Bound, deadline: Deadline
    ) -> Mapping[int, int] | None:
        """Offset of each partition, as its leader knows it. None if the topic does not exist."""
        spec, isolation = _BOUNDS[bound]
        wanted = {TopicPartition(topic, partition): spec for partition in partitions}

        def request(client: AdminClient, timeout_s: float) -> Mapping[int, int]:
            found = list_offsets(client, wanted, isolation, timeout_s)
            return {place.partition: answer.offset for place, answer in found.items()}

        # Without a leader: either there is no such topic, or it will pass.
        answer = unless(request, "_NOENT", "UNKNOWN_TOPIC_OR_PART")
        while True:
            found = self.ask("cannot look up offsets", topic, answer, deadline)
            if found is not None:
                return found
            if self.describe_topic(topic, deadline) is None:
                return None
            deadline.check("a partition has no leader", subject=topic)
            deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))

    def newest_timestamps(
        self, topic: str, partitions: Iterable[int], deadline: Deadline
    ) -> Mapping[int, int]:
        """Latest timestamp in each partition; those without a record are missing."""
        newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, partition): newest for partition in partitions}

        def request(client: AdminClient, timeout_s: float) -> Mapping[int, int]:
            found = list_offsets(client, wanted, IsolationLevel.READ_UNCOMMITTED, timeout_s)
            return {p.partition: at.timestamp for p, at in found.items() if at.timestamp >= 0}

        answer = unless(request, "_NOENT", "UNKNOWN_TOPIC_OR_PART")
        return self.ask("cannot look up timestamps", topic, answer, deadline) or {}

    def close(self) -> None:
        """Let go of the connection. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            _close(client)

    def _leave_client(self) -> None:
        """To a thread of its own: one that did not keep its time-out may not end either."""
        client, self._client = self._client, None
        if client is not None:
            Thread(target=_close, args=[client], name="admin-close", daemon=True).start()

    @property
    def is_turned_away(self) -> bool:
        """Whether the newest trouble of the connection is one that waiting does not cure."""
        return self._trouble.nature is Nature.REFUSED

    def _trouble_text(self) -> str:
        self._open().poll(0)
        return self._trouble.text

    def _open(self) -> AdminClient:
        if self._client is None:
            self._client = open_admin(admin_config(self._connection), {"error_cb": self._trouble})
        return self._client


def _close(client: AdminClient) -> None:
    # Not left to Python's cycle collector, which may run in the client's own thread: there
    # librdkafka aborts the process (confluent-kafka-python, pull request 2131).
    with client:
        pass


def answered(future: Future[_T], timeout_s: float) -> _T:
    """The answer to a request that was made with this time-out.

    librdkafka does not always keep it: a driver that had been frozen while a broker died waited for
    a description of a topic for ever.

    Raises:
        KafkaException: as the request; `_TIMED_OUT` also if there is no answer in time.
    """
    try:
        return future.result(timeout_s + LATE_ANSWER_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001


def list_offsets(
    client: AdminClient,
    wanted: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    timeout_s: float,
) -> Mapping[TopicPartition, ListOffsetsResultInfo]:
    """What each leader answers.

    When a leader does not answer in time, the client gives an impossible offset and no error; here
    that is the error it is.

    Raises:
        KafkaException: as every request.
    """
    answers = client.list_offsets(
        dict(wanted), isolation_level=isolation, request_timeout=timeout_s
    )
    found: dict[TopicPartition, ListOffsetsResultInfo] = {
        place: answered(answer, timeout_s) for place, answer in answers.items()
    }
    if any(answer.offset == OFFSET_INVALID for answer in found.values()):
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))
    return found


def unless(
    request: Callable[[AdminClient, float], _T], *names: str
) -> Callable[[AdminClient, float], _T | None]:
    """The same request, which answers None instead of failing with one of these codes."""

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

"""One transactional producer for one transaction: the only way in which output is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache, partial
from threading import Thread
from typing import Any

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import (
    AbortableError,
    DeadlineError,
    InvariantError,
    OnceflowError,
    RecordError,
    require,
)
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.kafka.clients import open_consumer, open_producer
from onceflow_connectors.kafka.failures import (
    CLIENT_ERRORS,
    Operation,
    consequence,
    describe,
    failure,
    is_passing,
    kafka_error,
)
from onceflow_connectors.kafka.properties import Setting, Settings, producer_config

TUNING: Mapping[str, Setting] = {
    "transaction.timeout.ms": 60_000,
    "compression.type": "lz4",
    # `commit` flushes and does not wait for it: it only makes requests of large batches fuller.
    "linger.ms": 5,
    # Bounds of the queue: what a transaction may hold of a batch beside the batch itself.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 128 * 1024,
    # A fresh producer connects to the coordinator at once: 5 ms to initialise, else 55 to 500.
    "enable.sparse.connections": False,
    # Answers such as CONCURRENT_TRANSACTIONS pass in milliseconds; the default waits 100 (p90).
    "retry.backoff.ms": 10,
}
"""Weaker than the user's properties."""

REQUEST_TIMEOUT_MS = 10_000
"""For one request; the default of 60 s would be longer than the budget of a transaction."""
POLL_INTERVAL = 1_000
"""Records between two looks at delivery reports: they occupy the queue until looked at."""
REPORT_POLLS, REPORT_POLL_S = 10, 0.02
"""How often and how long the report of a refused record is waited for: it names the culprit."""
ROOM_POLL_S = 0.1
"""Longest wait for a delivery report before a record is offered to a full queue again."""
RETRY_PAUSE_S = 0.02
"""Between two calls of which the first failed at once; librdkafka paces its own retries."""
LATE_ANSWER_S = 0.5
"""For a client that comes back at its deadline, with what it knows."""
ABORT_TIMEOUT_S = 5.0
"""An abort is a courtesy to readers: the next initialisation ends the transaction anyway."""
VICTIMS = frozenset({"_INVALID_DIFFERENT_RECORD", "_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Records that failed because another one did."""
MAX_GROUPS = 16
"""Groups whose metadata is kept: one per pipeline of a process, with room."""
MAX_KEY_SHOWN = 64
"""Bytes of a key in a message: enough to find the record."""


class _Stage(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    USED = auto()
    """Ended, or something was refused: then a commit would succeed without it, so none is tried."""


class KafkaIncarnation:
    """Implements `contracts.sink.Incarnation` on one librdkafka producer.

    Args:
        transactional_id: that fences all others of the same id.
        connection: how to reach the brokers; its properties go before `TUNING`.
    """

    def __init__(self, transactional_id: str, connection: Connection) -> None:
        self._transactional_id = transactional_id
        self._connection = connection
        self._stage = _Stage.NEW
        self._client: Producer | None = None
        self._refusals = _Refusals()

    @property
    def transactional_id(self) -> str:
        """The id that this incarnation was made for."""
        return self._transactional_id

    def initialise(self, deadline: Deadline) -> None:
        """See `Incarnation`. Resumes after passing errors until the deadline."""
        self._leave(_Stage.NEW)
        self._client = open_producer(self._settings(), {"on_delivery": self._refusals})
        error = _settle(self._client.init_transactions, deadline)
        if error is not None:
            what = "cannot initialise a transactional id"
            raise self._late_or_failed(error, Operation.INITIALISE, what, deadline)
        self._stage = _Stage.READY

    def begin(self) -> None:
        """See `Incarnation`."""
        self._leave(_Stage.READY)
        try:
            self._producer().begin_transaction()
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            raise self._failure(error, Operation.PRODUCE, "cannot begin a transaction") from raised
        self._stage = _Stage.OPEN

    def send(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        """See `Incarnation`. About 1.3 us of this thread per record."""
        self._leave(_Stage.OPEN)
        produce = self._producer().produce
        count = 0
        for record in records:
            headers: Any = None if record.header is None else [(HEADER_NAME, record.header)]
            if record.more_headers:
                headers = [*(headers or ()), *record.more_headers]
            while True:  # until there is room, or the deadline is over
                try:
                    # By position: the fastest way in; produce_batch() would drop the headers.
                    produce(
                        topic, record.value, record.key, record.partition,
                        None, None, record.timestamp_ms or 0, headers,
                    )  # fmt: skip
                    break
                except BufferError:
                    deadline.check("no room in the client's queue", subject=self._transactional_id)
                    self._serve_reports(deadline.at_most_s(ROOM_POLL_S))
                except CLIENT_ERRORS as raised:
                    raise self._refused(raised, _name(topic, record)) from raised
            count += 1
            if count % POLL_INTERVAL == 0:
                self._serve_reports(0)
        self._stage = _Stage.OPEN
        return count

    def send_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], deadline: Deadline
    ) -> None:
        """See `Incarnation`. Takes `LATE_ANSWER_S` longer at most."""
        self._leave(_Stage.OPEN)
        # The client ignores offsets below zero without a word.
        require(all(offset >= 0 for offset in offsets.values()), "offsets count from 0")
        send = partial(
            self._producer().send_offsets_to_transaction,
            [TopicPartition(topic, partition, n) for (topic, partition), n in offsets.items()],
            _group_metadata(group),
        )
        error = _settle_apart(send, deadline)
        if error is not None:
            what = f"cannot send offsets of group {group}"
            raise self._late_or_failed(error, Operation.SEND_OFFSETS, what, deadline)
        self._stage = _Stage.OPEN

    def commit(self, deadline: Deadline) -> None:
        """See `Incarnation`."""
        self._leave(_Stage.OPEN)
        error = _settle(self._producer().commit_transaction, deadline)
        if error is not None:
            raise self._failure(error, Operation.COMMIT, "a commit did not succeed")

    def abort(self, deadline: Deadline) -> None:
        """See `Incarnation`. Takes `ABORT_TIMEOUT_S` at most."""
        self._leave(_Stage.OPEN, _Stage.USED)
        with suppress(*CLIENT_ERRORS):
            self._producer().abort_transaction(deadline.at_most_s(ABORT_TIMEOUT_S))

    def discard(self) -> None:
        """See `Incarnation`. About a millisecond, also when no broker answers."""
        client, self._client = self._client, None
        self._stage = _Stage.USED
        if client is not None:
            with suppress(*CLIENT_ERRORS):
                client.purge(blocking=False)
        # The client ends with its last reference, which is `client`.

    def _settings(self) -> Settings:
        insisted: Mapping[str, Setting] = {
            "transactional.id": self._transactional_id,
            "delivery.report.only.error": True,
        }
        settings = {**TUNING, **producer_config(self._connection, insisted)}
        transaction_timeout_ms = str(settings["transaction.timeout.ms"])
        if transaction_timeout_ms.isdecimal():
            # Offsets are sent with this time-out, whatever time-out the call is given. The client
            # refuses one that is longer than the transaction's.
            longest_ms = min(REQUEST_TIMEOUT_MS, int(transaction_timeout_ms))
            settings = {"socket.timeout.ms": longest_ms, **settings}
        return settings

    def _leave(self, *stages: _Stage) -> None:
        """Begin a step: used up, unless the step succeeds and says otherwise."""
        require(
            self._stage in stages,
            "an incarnation carries one transaction, in order, and none after a failure",
            subject=self._transactional_id,
            found=f"stage {self._stage.name}",
        )
        self._stage = _Stage.USED

    def _producer(self) -> Producer:
        if self._client is None:
            raise InvariantError("no client any more", subject=self._transactional_id)
        return self._client

    def _serve_reports(self, timeout_s: float) -> None:
        try:
            self._producer().poll(timeout_s)
        except CLIENT_ERRORS as raised:
            raise self._refused(raised, "records") from raised

    def _refused(self, raised: Exception, record: str) -> OnceflowError:
        error = self._true_cause(kafka_error(raised))
        return self._failure(error, Operation.PRODUCE, f"cannot write {record}")

    def _true_cause(self, error: KafkaError) -> KafkaError:
        """What is behind the `_FATAL` of a produce(), which carries neither cause nor flags."""
        if error.name() != "_FATAL":
            return error
        try:
            self._producer().begin_transaction()
        except CLIENT_ERRORS as raised:
            return kafka_error(raised)
        return error

    def _late_or_failed(
        self, error: KafkaError, operation: Operation, what: str, deadline: Deadline
    ) -> OnceflowError:
        if not is_passing(error):
            return self._failure(error, operation, what)
        return DeadlineError(
            what,
            subject=self._transactional_id,
            expected=f"done within {deadline.budget_s:g} s",
            found=describe(error),
        )

    def _failure(self, error: KafkaError, operation: Operation, what: str) -> OnceflowError:
        """The exception for an error; for that of a lost transaction, what lost it."""
        if consequence(error, operation) is AbortableError:
            self._await_refusal()
        if self._refusals.first and consequence(error, operation) in {AbortableError, RecordError}:
            error, record = self._refusals.first
            operation, what = Operation.PRODUCE, f"cannot write {record}"
        return failure(error, operation, what, subject=self._transactional_id)

    def _await_refusal(self) -> None:
        """Give the report of a refused record, which comes after its effect, time to come."""
        with suppress(*CLIENT_ERRORS):
            for _ in range(REPORT_POLLS):
                if self._refusals.first is not None:
                    return
                self._producer().poll(REPORT_POLL_S)


class _Refusals:
    """Delivery callback, called for failures alone. Keeps the first, which names the culprit."""

    def __init__(self) -> None:
        self.first: tuple[KafkaError, str] | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self.first is not None or error.name() in VICTIMS:
            return
        record = OutputRecord(message.partition() or 0, message.key(), message.value())
        self.first = error, _name(str(message.topic()), record)


def _name(topic: str, record: OutputRecord) -> str:
    size_bytes = len(record.key or b"") + len(record.value or b"")
    key = "no key" if record.key is None else f"key {record.key[:MAX_KEY_SHOWN]!r}"
    return f"a record of {size_bytes} bytes with {key} to {topic}-{record.partition}"


def _settle(call: Callable[[float], object], deadline: Deadline) -> KafkaError | None:
    """Call, and call again while the error is a passing one and time is left.

    Returns:
        The last error, or None when a call succeeded.
    """
    while True:
        try:
            call(deadline.remaining_s())
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
        else:
            return None
        if deadline.is_over or not is_passing(error):
            return error
        deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))


def _settle_apart(call: Callable[[float], object], deadline: Deadline) -> KafkaError | None:
    """As `_settle`, for a call of which the client may forget the time-out.

    Where the group's coordinator cannot be found, librdkafka waits for any broker's connection to
    change, for ever if none does (librdkafka #5456, #5511). The client is then left to the thread
    that waits in it; both end with that wait, or with the process.

    Returns:
        As `_settle`; `_TIMED_OUT` if the client did not come back.
    """
    end: Future[KafkaError | None] = Future()

    def run() -> None:
        try:
            end.set_result(_settle(call, deadline))
        except BaseException as error:  # noqa: BLE001  raised where the result is waited for
            end.set_exception(error)

    Thread(target=run, name="send-offsets", daemon=True).start()
    try:
        return end.result(deadline.remaining_s() + LATE_ANSWER_S)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001  the client's constants look private


@lru_cache(maxsize=MAX_GROUPS)
def _group_metadata(group: str) -> Any:
    """What the client wants to know of a group in which it is no member."""
    # Without an address the consumer connects to nothing.
    consumer = open_consumer({"group.id": group})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()

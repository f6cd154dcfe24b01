"""The queue of one producer: takes records, and tells which of them was refused and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from onceflow.clock import Deadline
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import AbortableError, DeadlineError, OnceflowError, RecordError
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    consequence,
    failure,
    kafka_error,
)
from onceflow_connectors.kafka.client.librdkafka import Setting, Settings, open_client

QUEUE: Mapping[str, Setting] = {
    "compression.type": "lz4",
    # A flush does not wait for it: it only makes requests of large batches fuller.
    "linger.ms": 5,
    # Bounds of the queue: what it may hold of a batch besides the batch itself.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 128 * 1024,
    # A fresh producer connects to the coordinator at once: 5 ms to initialise, else 55 to 500.
    "enable.sparse.connections": False,
    # Answers such as CONCURRENT_TRANSACTIONS pass in milliseconds; the default waits 100 (p90).
    "retry.backoff.ms": 10,
}
"""Settings of every producer of output. The user's properties go before them."""

POLL_INTERVAL = 1_000
"""Records between two looks at delivery reports: they occupy the queue until looked at."""
REPORT_POLLS, REPORT_POLL_S = 10, 0.02
"""How often and how long to wait for the report that names the refused record."""
ACK_POLL_S = 0.002
"""Pause between two looks whether all is acknowledged; no report tells that."""
ROOM_POLL_S = 0.1
"""Longest wait for a delivery report before a record is offered to a full queue again."""
OnWritten: TypeAlias = Callable[[int, int], object]
"""Takes the partition and the offset of a record that is acknowledged."""
VICTIMS = frozenset({"_INVALID_DIFFERENT_RECORD", "_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Records that failed because another one did."""
MAX_KEY_SHOWN = 64
"""Bytes of a key in a message: enough to find the record."""


class Outbox:
    """One producer, named for messages, and what became of its records.

    Args:
        is_reporting: whether `on_written` of `put` is called.
        on_statistics: takes the client's statistics, where settings ask for them.

    Raises:
        ConfigError: the client refuses a setting.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        is_reporting: bool = False,
        on_statistics: Callable[[str], None] | None = None,
    ) -> None:
        self._name = name
        self._refusals = _Refusals()
        settings = {**settings, "delivery.report.only.error": not is_reporting}
        callbacks = {"stats_cb": on_statistics} if on_statistics else {}
        self.client = open_client(Producer, settings, on_delivery=self._refusals, **callbacks)

    def put(
        self,
        topic: str,
        records: Iterable[OutputRecord],
        deadline: Deadline,
        on_written: OnWritten | None = None,
    ) -> int:
        """Queue records and return how many. Waits for room while the queue is full.

        About 1.3 us of this thread per record. `on_written` is called for each that is
        acknowledged, by this method or by `flush`.

        Raises:
            AbortableError, FencedError, RecordError: a record, perhaps of an earlier call, was
                refused.
            DeadlineError: no room in time.
        """
        produce = self.client.produce
        report = self._refusals.and_then(on_written) if on_written else None
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
                        report, None, record.timestamp_ms or 0, headers,
                    )  # fmt: skip
                    break
                except BufferError:
                    deadline.check("no room in the client's queue", subject=self._name)
                    self._serve_reports(deadline.at_most_s(ROOM_POLL_S))
                except CLIENT_ERRORS as raised:
                    raise self._cannot_write(raised, _name(topic, record)) from raised
            count += 1
            if count % POLL_INTERVAL == 0:
                self._serve_reports(0)
        return count

    def flush(self, deadline: Deadline) -> None:
        """Wait until every record is acknowledged.

        Does not use the client's own `flush`: if a fatal error surfaces in it, the binding loses
        the report that names the refused record.

        Raises:
            AbortableError, FencedError, RecordError: one was refused.
            DeadlineError: not all are acknowledged in time.
        """
        while len(self.client) and self._refusals.first is None:
            if deadline.is_over:
                raise DeadlineError(
                    "records are not acknowledged",
                    subject=self._name,
                    expected=f"all within {deadline.budget_s:g} s",
                    found=f"{len(self.client)} outstanding",
                )
            try:
                self.client.poll(deadline.at_most_s(ACK_POLL_S))
            except CLIENT_ERRORS as raised:
                if self._await_refusal() is None:
                    raise self._cannot_write(raised, "records") from raised
        self.check()

    def check(self) -> None:
        """Return if no record was refused so far.

        Raises:
            AbortableError, FencedError, RecordError: one was.
        """
        if self._refusals.first is not None:
            raise self._refusal(*self._refusals.first)

    def failure(self, error: KafkaError, operation: Operation, what: str) -> OnceflowError:
        """Return the exception for an error; if it follows from a refused record, for that record.

        A transaction fails of one record or of one earlier error, and only that tells what to do.
        """
        kind = consequence(error, operation)
        if kind in {AbortableError, RecordError} and (first := self._await_refusal()):
            return self._refusal(*first)
        if error.name() == "_STATE":  # says only that something has failed before
            cause = self._cause(error)
            error = cause if consequence(cause, operation) is kind else error
        return failure(error, operation, what, subject=self._name)

    def discard(self) -> None:
        """Drop what is queued. The client ends with its last reference, which should be ours."""
        with suppress(*CLIENT_ERRORS):
            self.client.purge(blocking=False)

    def _serve_reports(self, timeout_s: float) -> None:
        try:
            self.client.poll(timeout_s)
        except CLIENT_ERRORS as raised:
            raise self._cannot_write(raised, "records") from raised

    def _cannot_write(self, raised: Exception, record: str) -> OnceflowError:
        error = kafka_error(raised)
        if error.name() == "_FATAL":  # of a produce(), which carries neither cause nor flags
            error = self._cause(error)
        return self.failure(error, Operation.PRODUCE, f"cannot write {record}")

    def _refusal(self, error: KafkaError, record: str) -> OnceflowError:
        return failure(error, Operation.PRODUCE, f"cannot write {record}", subject=self._name)

    def _cause(self, error: KafkaError) -> KafkaError:
        """Ask the client what it failed of, which it says when it is to begin a transaction."""
        try:
            self.client.begin_transaction()
        except CLIENT_ERRORS as raised:
            return kafka_error(raised)
        return error

    def _await_refusal(self) -> tuple[KafkaError, str] | None:
        """Return the first refused record. Its report comes after its effect: wait a little."""
        for _ in range(REPORT_POLLS):
            if self._refusals.first is not None:
                break
            with suppress(*CLIENT_ERRORS):
                self.client.poll(REPORT_POLL_S)
        return self._refusals.first


class _Refusals:
    """Delivery callback for failures. Keeps the first, which names the record at fault."""

    def __init__(self) -> None:
        self.first: tuple[KafkaError, str] | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self.first is not None or error.name() in VICTIMS:
            return
        record = OutputRecord(message.partition() or 0, message.key(), message.value())
        self.first = error, _name(str(message.topic()), record)

    def and_then(self, on_written: OnWritten) -> Callable[[KafkaError | None, Message], None]:
        """Return a callback that also reports success."""

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                on_written(int(message.partition() or 0), int(message.offset() or 0))
            else:
                self(error, message)

        return report


def _name(topic: str, record: OutputRecord) -> str:
    size_bytes = len(record.key or b"") + len(record.value or b"")
    key = "no key" if record.key is None else f"key {record.key[:MAX_KEY_SHOWN]!r}"
    return f"a record of {size_bytes} bytes with {key} to {topic}-{record.partition}"

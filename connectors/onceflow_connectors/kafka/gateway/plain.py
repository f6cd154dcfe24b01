"""Writes posts without a key: one idempotent producer, whose reports answer the posts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import OnceflowError
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    failure,
    kafka_error,
)
from onceflow_connectors.kafka.client.librdkafka import Setting, open_client, producer_config
from onceflow_connectors.kafka.gateway.slot import BY_KEY, Part, Place
from onceflow_connectors.kafka.sink.outbox import QUEUE

POLL_S = 0.1
CLOSE_TIMEOUT_S = 10.0
MAX_QUEUED = 100_000
"""Records without a report; beyond it, posts are refused."""
TUNING: Mapping[str, Setting] = {
    **QUEUE,
    "linger.ms": 1,
    "queue.buffering.max.messages": 2 * MAX_QUEUED,
    "partitioner": BY_KEY,
    # Records of different posts have nothing to do with each other.
    "enable.gapless.guarantee": False,
}

Settled: TypeAlias = Callable[[Sequence[Place], OnceflowError | None], None]
"""Takes the places of a post's records; or why not all of them are known to be written."""


class PlainWriter:
    """Writes posts without transactions. `write` is for one thread; reports come from another.

    Args:
        timeout_s: after which a record that is not acknowledged is given up.
        on_burst: called after each burst of reports, in the thread that they come from.
    """

    def __init__(
        self, connection: Connection, timeout_s: float, on_burst: Callable[[], None]
    ) -> None:
        limits: Mapping[str, Setting] = {"message.timeout.ms": int(timeout_s * 1000)}
        self._settings = {**TUNING, **producer_config(connection, limits)}
        self._on_burst = on_burst
        self._producer: Producer = open_client(Producer, self._settings)
        self._is_broken = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve_reports, name="reports", daemon=True)
        self._thread.start()

    def write(self, part: Part, settled: Settled) -> None:
        """Queue the records of a post; `settled` is called once, when all have a report.

        Raises:
            BufferError: the queue is full. Nothing of the post is written.
        """
        if self._is_broken and not len(self._producer):
            self._producer, self._is_broken = open_client(Producer, self._settings), False
        post = _Post(part.topic, len(part.records), settled)
        # Of a broken client, all records must have had their reports before another is made.
        if self._is_broken or len(self._producer) + post.left > MAX_QUEUED:
            raise BufferError
        for record in part.records:
            self._produce(part.topic, record, post)

    def close(self) -> None:
        """Wait a while for what is queued, and end."""
        with suppress(*CLIENT_ERRORS):
            self._producer.flush(CLOSE_TIMEOUT_S)
        self._is_closing.set()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _produce(self, topic: str, record: OutputRecord, post: _Post) -> None:
        try:
            self._producer.produce(
                topic, record.value, record.key, record.partition, post, None, 0, None
            )
        except BufferError:
            post.fail(KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001  the client's constants
        except CLIENT_ERRORS as raised:
            self._note(kafka_error(raised))
            post.fail(kafka_error(raised))

    def _serve_reports(self) -> None:
        while not self._is_closing.is_set():
            try:
                served = self._producer.poll(POLL_S)
            except CLIENT_ERRORS as raised:
                self._note(kafka_error(raised))
                served = 1
            if served:
                self._on_burst()

    def _note(self, error: KafkaError) -> None:
        self._is_broken = self._is_broken or error.fatal() or error.name() == "_FATAL"


class _Post:
    """Reports of one post's records."""

    def __init__(self, topic: str, records: int, settled: Settled) -> None:
        self.topic = topic
        self.left = records
        self._settled = settled
        self._places: list[Place] = []
        self._error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.fail(error)
            return
        self._places.append((int(message.partition() or 0), int(message.offset() or 0)))
        self._count()

    def fail(self, error: KafkaError) -> None:
        """Count a record that may not have been written."""
        self._error = self._error or error
        self._count()

    def _count(self) -> None:
        self.left -= 1
        if self.left:
            return
        self._settled(self._places, None if self._error is None else self._failure(self._error))

    def _failure(self, error: KafkaError) -> OnceflowError:
        then = "some of the post may be written"
        what = "records are not acknowledged"
        return failure(error, Operation.PRODUCE, what, subject=self.topic, then=then)

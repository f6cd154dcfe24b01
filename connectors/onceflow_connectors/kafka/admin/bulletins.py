"""A pipeline's bulletins, as metadata of consumer group offsets: `contracts.BulletinBoard`.

Kafka keeps the newest metadata of an offset and nothing else of it, for a week after the last
commit. So a bulletin needs no topic of its own and no clean-up, and puts no load on the
ledger, whose reads look for the newest entry from its end.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from onceflow.clock import Deadline
from onceflow.contracts.connector import MAX_BULLETIN_BYTES, Connection
from onceflow.errors import require
from onceflow.protocol.identity import bulletin_group, ledger_topic
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    failure,
    is_passing,
    kafka_error,
)
from onceflow_connectors.kafka.client.librdkafka import consumer_config, open_client

KINDS = (0, 1)
"""Partitions of the ledger whose offsets carry bulletins: each ledger has these two."""
END_BYTES = 1
"""The zero byte that confluent-kafka writes after metadata."""
MAX_UNANSWERED = 8
"""Further bulletins are dropped while so many wait for a coordinator: one will be enough."""
_WAITS = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 1_000}
"""Without a coordinator, librdkafka gives up an offset commit after this time, and closing a
consumer waits for that. No member joins the group."""
POLL_S = 0.1
TRY_S = 5.0
"""Time limit for one request: a coordinator that is being elected is asked again."""


class KafkaBulletinBoard:
    """Implements `contracts.connector.BulletinBoard`. Not for several threads at once.

    Uses a consumer, not an administrative client: librdkafka 2.16 crashes the process when that
    asks a coordinator which has moved (issue 5040).
    """

    def __init__(self, pipeline: str, connection: Connection) -> None:
        self._topic = ledger_topic(pipeline)
        self._group = bulletin_group(pipeline)
        self._connection = connection
        self._consumer: Consumer | None = None
        self._posted = 0
        self._answered = 0

    def post(self, kind: int, text: str) -> None:
        size = len(text.encode()) + END_BYTES
        require(kind in KINDS, "a bulletin is of a known kind", found=str(kind))
        require(size <= MAX_BULLETIN_BYTES, "a bulletin is small", found=f"{size} bytes")
        consumer = self._open()
        consumer.poll(0)  # counts the answers to earlier ones
        if self._posted - self._answered >= MAX_UNANSWERED:
            return
        try:
            consumer.commit(offsets=[TopicPartition(self._topic, kind, 0, text)], asynchronous=True)
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            raise failure(
                error, Operation.ADMINISTER, "cannot post a bulletin", subject=self._group
            ) from raised
        self._posted += 1

    def settle(self, deadline: Deadline) -> None:
        while self._answered < self._posted and not deadline.is_over:
            self._open().poll(deadline.at_most_s(POLL_S))

    def read(self, deadline: Deadline) -> Mapping[int, str]:
        wanted = [TopicPartition(self._topic, kind) for kind in KINDS]
        while True:
            try:
                timeout_s = max(POLL_S, deadline.at_most_s(TRY_S))
                found = self._open().committed(wanted, timeout=timeout_s)
                return {
                    at.partition: at.metadata for at in found if at.error is None and at.metadata
                }
            except CLIENT_ERRORS as raised:
                error = self._met() or kafka_error(raised)
            what = "cannot read bulletins"
            if not is_passing(error):
                raise failure(error, Operation.ADMINISTER, what, subject=self._group)
            deadline.check(what, subject=self._group)
            deadline.clock.sleep(deadline.at_most_s(POLL_S))

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            settings = consumer_config(self._connection, {"group.id": self._group, **_WAITS})
            self._consumer = open_client(Consumer, settings, on_commit=self._on_answer)
        return self._consumer

    def _met(self) -> KafkaError | None:
        """Return what the client met: a request that we may not make is never answered."""
        told = self._open().poll(0)
        return None if told is None else told.error()

    def _on_answer(self, *_: object) -> None:
        self._answered += 1

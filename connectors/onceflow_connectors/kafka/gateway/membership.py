"""Which slots this instance is to own: a consumer group shares the partitions of keys.

It only proposes who takes a slot, and reads nothing. A slot is safe by its claim and its
transactional ids.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from onceflow.contracts.connector import Connection
from onceflow_connectors.kafka.client.failures import CLIENT_ERRORS, describe, kafka_error
from onceflow_connectors.kafka.client.librdkafka import Setting, consumer_config, open_client

POLL_S = 0.1
PAUSE_S = 1.0
"""After an error of the client."""


@dataclass(frozen=True)
class Hooks:
    """Called by the thread of a membership.

    Args:
        gained: with a slot that this instance is to take.
        lost: with a slot that it is to leave. The next owner waits until it returns.
        tick: several times a second.
        warn: with what is wrong.
    """

    gained: Callable[[int], None]
    lost: Callable[[int], None]
    tick: Callable[[], None]
    warn: Callable[[str], None]


class Membership:
    """A member of the group of a gateway's instances, in a thread of its own.

    Args:
        topic: whose partitions are the slots.
        takeover_after_ms: without a sign of life, another instance gets the slots.
    """

    def __init__(
        self, group: str, topic: str, connection: Connection, takeover_after_ms: int, hooks: Hooks
    ) -> None:
        member: Mapping[str, Setting] = {
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": takeover_after_ms,
            "heartbeat.interval.ms": takeover_after_ms // 4,
        }
        self._topic = topic
        self._settings = consumer_config(connection, member)
        self._hooks = hooks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Leave every slot, and the group."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        consumer = open_client(Consumer, self._settings)
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            while not self._stop.is_set():
                self._poll(consumer)
                self._hooks.tick()
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        try:
            message = consumer.poll(POLL_S)
        except CLIENT_ERRORS as raised:
            self._hooks.warn(describe(kafka_error(raised)))
            self._stop.wait(PAUSE_S)
            return
        if message is not None and (error := message.error()) is not None:
            self._hooks.warn(describe(error))

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        at_end = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
        consumer.incremental_assign(at_end)
        # Only to be a member: the keys are read elsewhere.
        consumer.pause(at_end)
        for place in partitions:
            self._hooks.gained(place.partition)

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self._hooks.lost(place.partition)
        consumer.incremental_unassign([*partitions])

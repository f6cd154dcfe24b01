"""Reads the committed records of a range of offsets. Waits for open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.errors import DeadlineError
from onceflow_connectors.kafka.client.failures import Operation, describe, failure, is_passing
from onceflow_connectors.kafka.client.librdkafka import Setting, consumer_config, open_client

POLL_S = 0.2
"""Longest wait in the client before the deadline is looked at again."""

SETTINGS: Mapping[str, Setting] = {
    "isolation.level": "read_committed",
    # Tells how far a partition is decided, also where the last offsets hold no record.
    "enable.partition.eof": True,
    # The end of a range is only noticed when a fetch comes back empty: at 500 ms, the default,
    # each read would take half a second; at 5 it takes 7.
    "fetch.wait.max.ms": 5,
    # With a rack, the client may be sent to a follower, which lags behind the leader.
    "client.rack": "",
}
"""Required: no property of the user may change them."""

LOOK_SETTINGS: Mapping[str, Setting] = {
    **SETTINGS,
    # A record that is not decided yet has its timestamp already.
    "isolation.level": "read_uncommitted",
    # For one record of each partition.
    "max.partition.fetch.bytes": 65_536,
}
"""For `first_timestamps`."""


class CommittedReader:
    """One consumer that reads ranges, one after the other, from the leaders.

    Not for several threads at once, nor for two interleaved reads.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._consumer: Consumer | None = None

    def read(
        self, topic: str, partition: int, offsets: tuple[int, int], deadline: Deadline
    ) -> Iterator[Message]:
        """Yield the committed records in the half-open range `offsets`, in order.

        Ends only when every offset of the range is decided: holes that aborted transactions,
        markers and compaction leave are passed over, an open transaction is waited for.

        Raises:
            DeadlineError: something in the range is still undecided at the end of the budget.
            CorruptionError: the range begins before the first offset that still exists.
        """
        decided, end = offsets
        if decided >= end:
            return
        place = f"{topic}-{partition}"
        consumer = self._open()
        consumer.assign([TopicPartition(topic, partition, decided)])
        try:
            while decided < end:
                message = _next(consumer, place, (decided, end), deadline)
                offset = int(message.offset() or 0)
                if message.error() is not None:
                    decided = offset
                    continue
                decided = offset + 1
                if offset < end:
                    yield message
        finally:
            # Otherwise the client would go on fetching, two hundred times a second.
            if consumer is self._consumer:
                consumer.unassign()

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = open_client(Consumer, consumer_config(self._connection, SETTINGS))
        return self._consumer


def first_timestamps(
    connection: Connection, topic: str, offsets: Mapping[int, int], deadline: Deadline
) -> Mapping[int, int]:
    """Implements `Broker.first_timestamps`, for all partitions at once."""
    found: dict[int, int] = {}
    waiting = {*offsets}
    consumer = open_client(Consumer, consumer_config(connection, LOOK_SETTINGS))
    try:
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in offsets.items()])
        while waiting and not deadline.is_over:
            message = consumer.poll(deadline.at_most_s(POLL_S))
            if message is None or message.partition() not in waiting:
                continue
            partition, error = int(message.partition() or 0), message.error()
            if error is None:
                found[partition] = message.timestamp()[1]
            elif is_passing(error):
                continue
            waiting.discard(partition)
            consumer.pause([TopicPartition(topic, partition)])
    finally:
        consumer.close()
    return found


def _next(consumer: Consumer, place: str, missing: tuple[int, int], deadline: Deadline) -> Message:
    """Return the next record, or the event that everything before its offset is decided."""
    trouble = "an open transaction, or no answer"
    while not deadline.is_over:
        message = consumer.poll(deadline.at_most_s(POLL_S))
        if message is None:
            continue
        error = message.error()
        if error is None or error.name() == "_PARTITION_EOF":
            return message
        if not is_passing(error):
            raise failure(error, Operation.READ, "cannot read", subject=place)
        trouble = describe(error)
    raise DeadlineError(
        "offsets are not decided",
        subject=f"[{missing[0]}, {missing[1]}) of {place}",
        expected=f"every transaction ended within {deadline.budget_s:g} s",
        found=trouble,
    )

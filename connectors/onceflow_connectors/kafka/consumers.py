"""Reads the records of a split with a consumer that outlives it.

A worker process keeps its consumer: it goes on fetching between two batches, so the next one is
often here already, and a consumer made anew for each batch would halve the throughput. Partitions
are assigned by hand; there is no group, no commit, and no offset to fall back to.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Split
from onceflow.errors import CorruptionError, DeadlineError, require
from onceflow_connectors.kafka.clients import open_consumer
from onceflow_connectors.kafka.failures import (
    CLIENT_ERRORS,
    Operation,
    describe,
    failure,
    is_passing,
    kafka_error,
)
from onceflow_connectors.kafka.origin import Origin, log_is_shorter
from onceflow_connectors.kafka.properties import Setting, consumer_config

CHUNK_RECORDS = 10_000
"""Records that are decoded together: large enough for Arrow, small enough for the CPU's cache."""
STALL_TIMEOUT_S = 60.0
"""A range that is decided can be read at once; without progress for so long, brokers are gone."""
POLL_S = 0.1
"""Longest wait in the client before the time-out is looked at again."""
MAX_IDLE_READERS = 4
"""Consumers that a worker keeps: one for each cluster it reads from, which is rarely more than one.
"""

_PREFETCH: Mapping[str, Setting] = {
    # Once the queue is full, librdkafka looks at it again only after this: at 1000 ms, the default,
    # reading stops for a second again and again (measured: 220,000 records/s, 790,000 with 2 ms).
    "fetch.queue.backoff.ms": 2,
    # What is fetched ahead is lost when the next split is read by another worker: keep it short.
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    # A fetch that waits at the end of one partition delays the first fetch of another by so much.
    "fetch.wait.max.ms": 10,
    "fetch.error.backoff.ms": 100,
}
"""Tuning; the user's properties go before it."""

_INSISTED: Mapping[str, Setting] = {
    # Tells how far a partition is decided, also where the last offsets hold no record.
    "enable.partition.eof": True,
}

_END = "_PARTITION_EOF"
_OFFSET_IS_GONE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}
_ReaderKey: TypeAlias = tuple[int, str, tuple[tuple[str, str], ...]]


class SplitReader:
    """One consumer that reads splits, one after the other. Not for several threads.

    Args:
        connection: how to reach the brokers.
        clock: measures the time-out.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._consumer: Consumer | None = None
        self._next: Split | None = None
        self._ahead: Sequence[Message] = ()
        self._origin = Origin(connection, clock)
        self._trouble = "no answer"

    def chunks(self, split: Split) -> Iterator[Sequence[Message]]:
        """The committed records of a split, in order, a few thousand at a time.

        Ends when every offset of the range is decided; offsets without a record are passed over.

        Raises:
            CorruptionError: part of the range no longer exists, or the topic is another one now.
            DeadlineError: no progress within `STALL_TIMEOUT_S`.
        """
        try:
            yield from self._chunks(split)
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            raise failure(error, Operation.READ, "cannot read", subject=_name(split)) from raised

    def close(self) -> None:
        """Let go of the connection. Safe to call twice."""
        consumer, self._consumer, self._next = self._consumer, None, None
        self._origin.close()
        if consumer is not None:
            consumer.close()

    def _chunks(self, split: Split) -> Iterator[Sequence[Message]]:
        self._go_to(split)
        left = split
        while left.start < left.end:
            chunk, decided = self._take(left)
            left = replace(left, start=decided)
            if chunk:
                yield chunk
        # Only now: whoever stops in the middle leaves the consumer at an unknown place.
        self._next = left

    def _go_to(self, split: Split) -> None:
        """Stand at the start of the split; nothing to do if the split before ended there."""
        here, self._next = self._next, None
        if here is not None and here == replace(split, end=split.start):
            return
        self._ahead = ()
        self._open().assign([TopicPartition(split.topic, split.partition, split.start)])
        if split.topic_id:  # the first fetch is on its way meanwhile
            self._origin.known_topics({split.topic: split.topic_id})

    def _take(self, left: Split) -> tuple[Sequence[Message], int]:
        """The next records of what is left of a split, and the offset up to which it is decided.

        What was fetched beyond its end is kept, events too: librdkafka tells an end only once.
        """
        patience = Deadline.after(self._clock, STALL_TIMEOUT_S)
        while True:
            messages = self._ahead or self._fetch(min(CHUNK_RECORDS, left.end - left.start))
            self._ahead = ()
            if _has_events(messages):
                messages = [m for m in messages if self._is_progress(m, left)]
            decided = _decided(messages, left)
            if decided > left.start:
                inside = bisect_left(messages, left.end, key=_offset)
                self._ahead = messages[inside:]
                return _records(messages[:inside]), min(decided, left.end)
            if patience.is_over:
                raise self._stalled(left)

    def _fetch(self, limit: int) -> Sequence[Message]:
        """Wait for the first, then take what is here: no time is lost waiting for a full chunk."""
        consumer = self._open()
        messages = consumer.consume(1, POLL_S)
        if messages and limit > 1:
            messages += consumer.consume(limit - 1, 0)
        return messages

    def _is_progress(self, message: Message, left: Split) -> bool:
        """Whether this is a record or tells how far the partition is decided; else a trouble."""
        error = message.error()
        if error is None or error.name() == _END:
            return True
        if error.name() in _OFFSET_IS_GONE:
            self._check_existence(left)
            self._open().assign([TopicPartition(left.topic, left.partition, left.start)])
        elif not is_passing(error):
            raise failure(error, Operation.READ, "cannot read", subject=_name(left))
        self._trouble = describe(error)
        return False

    def _check_existence(self, left: Split) -> None:
        """Whether the next offset exists, now that a broker has said that it does not."""
        place = (left.topic, left.partition)
        log_start = self._origin.starts([place])[place]
        log_end = self._origin.ends([place])[place]
        if log_start > left.start:
            raise CorruptionError(
                "records were deleted before they were read",
                subject=f"offsets [{left.start}, {min(log_start, left.end)}) of {_name(left)}",
                expected=f"a log that starts at or before {left.start}",
                found=f"a log that starts at {log_start}",
                then="halting; they are lost to this pipeline: keep records longer"
                " (retention.ms, retention.bytes), and start a new generation",
            )
        if log_end < left.start:
            raise log_is_shorter(place, left.start, log_end)

    def _stalled(self, left: Split) -> DeadlineError:
        return DeadlineError(
            "reading makes no progress",
            subject=f"offset {left.start} of {_name(left)}",
            expected=f"all offsets before {left.end} within {STALL_TIMEOUT_S:g} s",
            found=self._trouble,
            then="the task fails and is tried again",
        )

    def _open(self) -> Consumer:
        if self._consumer is None:
            tuned = replace(
                self._connection,
                properties={**_texts(_PREFETCH), **self._connection.properties},
            )
            self._consumer = open_consumer(consumer_config(tuned, _INSISTED))
        return self._consumer


_idle: dict[_ReaderKey, SplitReader] = {}


@contextmanager
def leased_reader(connection: Connection, clock: Clock) -> Iterator[SplitReader]:
    """Lend this process's reader for a connection; a new one if it is in use or there is none."""
    key = (
        os.getpid(),  # a forked copy of a consumer is of no use
        connection.bootstrap_servers,
        tuple(sorted(connection.properties.items())),
    )
    reader = _idle.pop(key, None) or SplitReader(connection, clock)
    try:
        yield reader
    finally:
        _keep(key, reader)


def close_idle_readers() -> None:
    """Close every reader that this process keeps and that is not lent."""
    for key in [key for key in _idle if key[0] == os.getpid()]:
        _idle.pop(key).close()


def _keep(key: _ReaderKey, reader: SplitReader) -> None:
    """The newest stays; the oldest goes when there are too many."""
    if key in _idle:
        _idle.pop(key).close()
    own = [other for other in _idle if other[0] == key[0]]
    if len(own) >= MAX_IDLE_READERS:
        _idle.pop(own[0]).close()
    _idle[key] = reader


def _decided(messages: Sequence[Message], left: Split) -> int:
    """The offset before which everything is decided, by records and by events."""
    if not messages:
        return left.start
    # An assignment drops what was fetched for another one; a record of it would be a repeat.
    for record in _records([messages[0], messages[-1]]):
        require(
            (record.topic(), record.partition()) == (left.topic, left.partition)
            and _offset(record) >= left.start,
            "a consumer yields what is assigned to it",
            subject=f"offset {left.start} of {_name(left)}",
            found=f"offset {_offset(record)} of {record.topic()}-{record.partition()}",
        )
    last = messages[-1]
    return _offset(last) + 1 if last.error() is None else _offset(last)


def _has_events(messages: Sequence[Message]) -> bool:
    return any(map(Message.error, messages))  # 18 ns each, less than half of a comprehension


def _records(messages: Sequence[Message]) -> Sequence[Message]:
    if not _has_events(messages):
        return messages
    return [message for message in messages if message.error() is None]


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _name(split: Split) -> str:
    return f"{split.topic}-{split.partition}"


def _texts(settings: Mapping[str, Setting]) -> Mapping[str, str]:
    return {name: str(value) for name, value in settings.items()}

"""Reads the records of a split with a consumer that outlives it: the half in the workers.

A worker process keeps its consumer: it goes on fetching between two batches, so the next one is
often here already, and a new consumer for each batch would halve the throughput. Partitions
are assigned by hand; there is no group, no commit, and no offset to fall back to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Connection, Place
from onceflow.contracts.source import SourceSpec, Split
from onceflow.errors import NEW_GENERATION, CorruptionError, DeadlineError
from onceflow_connectors.batches import BatchBuilder, Columns
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    describe,
    failure,
    is_passing,
    kafka_error,
)
from onceflow_connectors.kafka.client.librdkafka import Setting, consumer_config, open_client
from onceflow_connectors.kafka.source.inbox import Inbox, has_events, trouble_of
from onceflow_connectors.kafka.source.origin import KafkaOrigin, log_is_shorter

CHUNK_RECORDS = 10_000
"""Records that are decoded together: large enough for Arrow, small enough for the CPU's cache."""
STALL_TIMEOUT_S = 60.0
"""A range that is decided can be read at once: without progress for this long, brokers are gone."""
POLL_S = 0.1
"""Longest wait in the client between two looks at the time-out."""
MAX_SKIP = CHUNK_RECORDS
"""Offsets to pass over instead of jumping: 3 ms, where a jump takes 10."""
WORTHWHILE_RECORDS = 1_000
"""From here on, decoding costs more than what a batch costs by itself (measured: 0.1 ms)."""
MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The end of the year 9999. What is later was written in another unit than milliseconds, and its
microseconds need not fit into 64 bits."""
MAX_ASSIGNED = 256
"""Partitions at which a reader stays although they are not in the next batch."""
MAX_PILE = 3 * CHUNK_RECORDS
"""Messages that may wait for one partition; what does not fit is fetched again. Splits that are
read together and what is passed over before them are shorter, so that this is rare."""
MAX_PILED_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for all partitions together, besides those read now: a worker has memory for
decoding. With records of a megabyte, the messages alone would be gigabytes."""
MAX_IDLE_READERS = 4
"""Consumers that a worker keeps: one for each cluster it reads from, which is rarely more than one.
"""

_PREFETCH: Mapping[str, str] = {
    # Once the queue is full, librdkafka looks at it again only after this: at 1000 ms, the default,
    # reading stops for a second again and again (measured: 220,000 records/s, 790,000 with 2 ms).
    "fetch.queue.backoff.ms": "2",
    # What is fetched ahead is lost when the next split is read by another worker: keep it short.
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
    "fetch.message.max.bytes": str(4 * 1024 * 1024),
    # Brokers collect for this long before they answer, unless there is much. Planning a batch takes
    # longer, so what was planned is here when it is to be read. Answers at once would be hundreds a
    # second: 55 ms of processor time per batch of 400 records, instead of 7. Longer would delay the
    # first fetch of another partition.
    "fetch.wait.max.ms": "50",
    "fetch.min.bytes": "1000000",
    "fetch.error.backoff.ms": "100",
}
"""The user's properties go before them."""

_INSISTED: Mapping[str, Setting] = {
    # Tells how far a partition is decided, also where the last offsets hold no record.
    "enable.partition.eof": True,
}

_OFFSET_IS_GONE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}
_ReaderKey: TypeAlias = tuple[int, str, str, tuple[tuple[str, str], ...]]


def _timestamp_us(record: Message) -> int | None:
    """Null where there is none: as event time, that is a reason to reject the record."""
    _, timestamp_ms = record.timestamp()
    return timestamp_ms * 1000 if 0 <= timestamp_ms <= MAX_TIMESTAMP_MS else None


def _headers(record: Message) -> list[dict[str, object]]:
    # A plain header is (name, value); the annotation of the client allows a mapping, too.
    return [{"key": each[0], "value": each[1]} for each in record.headers() or ()]


COLUMNS: Columns[Message] = {
    "_key": lambda record: record.key(),
    "_topic": lambda record: record.topic(),
    "_partition": lambda record: record.partition(),
    "_offset": lambda record: record.offset(),
    "_timestamp": _timestamp_us,
    "_value": lambda record: record.value(),
    "_headers": _headers,
}
"""Where the columns of `META_COLUMNS` come from."""


class KafkaReader:
    """Implements `contracts.source.Reader`."""

    def __init__(self, spec: SourceSpec, connection: Connection, clock: Clock) -> None:
        self._builder = BatchBuilder(spec, COLUMNS)
        self._connection = connection
        self._clock = clock

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        with leased_reader(self._connection, self._clock) as reader:
            for records in merged(reader.chunks(splits)):
                yield self._builder.batch(records)


class SplitReader:
    """One consumer that reads splits, one after the other. Not for several threads.

    It stays where it has read last, so that the splits which follow need no new fetch.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._origin = KafkaOrigin(connection, clock)
        self._consumer: Consumer | None = None
        self._next: dict[Place, int] = {}
        """The partitions that are assigned, and the offset to hand out next."""
        self._inbox = Inbox(MAX_PILE, MAX_PILED_BYTES)
        self._ids: dict[str, str] = {}
        """Ids of the topics that were checked against the splits."""
        self._is_settled = False
        """Whether these three are true: not after a read that was broken off."""
        self._trouble = "no answer"

    def chunks(self, splits: Sequence[Split]) -> Iterator[Sequence[Message]]:
        """The committed records of each split, in order, up to a few thousand at a time.

        Ends when every offset of the ranges is decided; offsets without a record are passed over.

        Raises:
            CorruptionError: part of a range no longer exists, or the topic is another one now.
            DeadlineError: no progress within `STALL_TIMEOUT_S`.
        """
        # Little is read together, much one by one.
        is_little = _size(splits) <= CHUNK_RECORDS
        try:
            for group in [splits] if is_little else [[split] for split in splits]:
                self._go_to(group)
                for split in group:
                    yield from self._read(split)
                self._is_settled = True
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            subject = ", ".join(map(_name, splits))
            raise failure(error, Operation.READ, "cannot read", subject=subject) from raised

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        consumer, self._consumer, self._is_settled = self._consumer, None, False
        self._origin.close()
        if consumer is not None:
            consumer.close()

    def _go_to(self, group: Sequence[Split]) -> None:
        """Go to the start of each split, or a little before it; records between are skipped.

        Workers take turns, so the batch before was as likely read by another. Its records were
        fetched here as well, and passing over them is quicker than fetching from another offset.
        """
        standing, self._next = (self._next if self._is_settled else {}), {}
        self._is_settled = False
        wanted = {_place(split): split.start for split in group}
        ids = {split.topic: split.topic_id for split in group if split.topic_id}
        is_near = all(0 <= at - standing.get(p, -MAX_SKIP) < MAX_SKIP for p, at in wanted.items())
        # With little data, any partition may come next. With much, other fetches would be wasted.
        kept = standing if _size(group) <= CHUNK_RECORDS else {}
        self._next = {**kept, **wanted}
        if is_near and len(self._next) == len(standing) and ids.items() <= self._ids.items():
            return
        if len(self._next) > MAX_ASSIGNED:
            self._next = wanted
        self._assign()
        # The first fetch is on its way meanwhile.
        self._origin.known_topics(ids)
        self._ids = {**self._ids, **ids}

    def _assign(self) -> None:
        self._inbox.clear()
        self._open().assign([TopicPartition(*place, at) for place, at in self._next.items()])

    def _read(self, left: Split) -> Iterator[Sequence[Message]]:
        """Yield the records of one split, while those of others pile up."""
        place = self._inbox.awaited = _place(left)
        patience = self._clock.within(STALL_TIMEOUT_S)
        while left.start < left.end:
            taken = self._inbox.take(place, left.start, left.end)
            if taken.trouble is not None:
                self._face(taken.trouble, left)
            elif taken.decided == left.start:
                self._wait(left, patience)
            else:
                left = replace(left, start=taken.decided)
                self._next[place] = left.start
                if taken.records:
                    yield taken.records
                patience = self._clock.within(STALL_TIMEOUT_S)

    def _wait(self, left: Split, patience: Deadline) -> None:
        if patience.is_over:
            raise DeadlineError(
                "reading makes no progress",
                subject=f"offset {left.start} of {_name(left)}",
                expected=f"all offsets before {left.end} within {STALL_TIMEOUT_S:g} s",
                found=self._trouble,
                then="the task fails and is tried again",
            )
        if self._inbox.is_cut_off(_place(left)):
            self._assign()
        self._receive(left)

    def _receive(self, left: Split) -> None:
        """Wait for the first, then take what is here: no time is lost waiting for a full chunk."""
        consumer = self._open()
        messages = consumer.consume(1, POLL_S)
        limit = min(CHUNK_RECORDS, left.end - left.start) - 1
        if messages and limit > 0:
            messages += consumer.consume(limit, 0)
        if len(self._next) == 1 and not has_events(messages):
            self._inbox.add(_place(left), messages)
            return
        for message in messages:
            place = (message.topic(), message.partition())
            if place in self._next:
                self._inbox.add(place, [message])
            elif message.topic() is None and (trouble := trouble_of(message)):
                self._face(trouble, left)  # it is about the client as a whole

    def _face(self, error: KafkaError, left: Split) -> None:
        """Note a trouble that will pass; raise what will not."""
        if error.name() in _OFFSET_IS_GONE:
            self._check_existence(left)
            self._assign()
        elif not is_passing(error):
            raise failure(error, Operation.READ, "cannot read", subject=_name(left))
        self._trouble = describe(error)

    def _check_existence(self, left: Split) -> None:
        """Whether the next offset exists, now that a broker has said that it does not."""
        place = _place(left)
        log_start = self._origin.starts([place])[place]
        log_end = self._origin.ends([place])[place]
        if log_start > left.start:
            raise CorruptionError(
                "records were deleted before they were read",
                subject=f"offsets [{left.start}, {min(log_start, left.end)}) of {_name(left)}",
                expected=f"a log that starts at or before {left.start}",
                found=f"a log that starts at {log_start}",
                then="halting rather than leave them out: restore the topic and start again; or, to"
                f" read what is left, {NEW_GENERATION}; and keep records longer (retention.ms,"
                " retention.bytes)",
            )
        if log_end < left.start:
            raise log_is_shorter(place, left.start, log_end)

    def _open(self) -> Consumer:
        if self._consumer is None:
            properties = {**_PREFETCH, **self._connection.properties}
            tuned = replace(self._connection, properties=properties)
            self._consumer = open_client(Consumer, consumer_config(tuned, _INSISTED))
        return self._consumer


def merged(chunks: Iterable[Sequence[Message]]) -> Iterator[Sequence[Message]]:
    """Join small chunks: a batch costs more than its few records."""
    held: Sequence[Message] = ()
    for chunk in chunks:
        held = [*held, *chunk] if held else chunk
        if len(held) >= WORTHWHILE_RECORDS:
            yield held
            held = ()
    if held:
        yield held


_idle: dict[_ReaderKey, SplitReader] = {}


@contextmanager
def leased_reader(connection: Connection, clock: Clock) -> Iterator[SplitReader]:
    """Lend this process's reader for a connection; a new one if it is in use or there is none."""
    key = (
        os.getpid(),  # a forked copy of a consumer is of no use
        connection.bootstrap_servers,
        connection.secrets_digest,
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


def _place(split: Split) -> Place:
    return split.topic, split.partition


def _size(splits: Sequence[Split]) -> int:
    return sum(split.end - split.start for split in splits)


def _name(split: Split) -> str:
    return f"{split.topic}-{split.partition}"

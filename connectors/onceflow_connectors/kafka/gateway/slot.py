"""One slot of a gateway: its partition of remembered keys, and the ids that may write to it.

A slot has several transactional ids, its lanes, used in turn: while the markers of one are written,
the next carries a transaction. `contracts.sink.Incarnation` tells why a second transaction of one
incarnation is dangerous: a copy of a request may end it. There is no copy after a transaction that
was quicker than any retry of the client. After a slower one, its lane is initialised again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import DeadlineError, RetriableError
from onceflow.protocol.identity import gateway_transactional_id
from onceflow_connectors.kafka.admin.administration import HIGH_WATERMARK, LOG_START, Administration
from onceflow_connectors.kafka.admin.reading import CommittedReader
from onceflow_connectors.kafka.gateway.owners import OwnerBoard
from onceflow_connectors.kafka.gateway.topics import KeyTopics, require_same_topic
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation

LANES = 4
"""One is used, and the markers of the one before are written. Others may have to be initialised:
that takes 10 ms, but sometimes 500."""
PREPARE_TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_MS = 30_000
"""Readers of the output wait so long after an instance that died and has no successor."""
RETRY_MS, RETRY_MAX_MS = 300, 1_000
"""The client sends no request of a transaction again sooner than four fifths of the first."""
SENT_ONCE_S = 0.2
"""In a transaction that took less than this, the client has sent each request once."""
BY_KEY = "murmur2_random"
"""Partition by the key as Java's clients do; without a key, any."""
ANY_PARTITION = -1
"""Lets the client choose, see `BY_KEY`."""

MARK: tuple[None, bytes] = (None, b"")
"""Key and value of a record that readers of keys skip. It takes their partition into a transaction
together with those of the posts. The keys tell where the posts are, so they come later."""

Place: TypeAlias = tuple[int, int]
"""Partition and offset that a record was written to."""
Entry: TypeAlias = tuple[bytes, bytes]
"""Key and value of a remembered post."""


@dataclass(frozen=True)
class Part:
    """The records of one post."""

    topic: str
    records: Sequence[OutputRecord]


@dataclass
class SlotWriter:
    """Takes a slot, and writes posts with what is remembered of them. For one thread.

    Args:
        board: is looked at after each initialisation.
    """

    gateway: str
    slot: int
    topics: KeyTopics
    connection: Connection
    board: OwnerBoard
    clock: Clock
    _read_to: int | None = None
    _lanes: dict[Future[KafkaIncarnation], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        properties = {
            **self.connection.properties,
            "partitioner": BY_KEY,
            "linger.ms": "0",
            "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
            "retry.backoff.ms": str(RETRY_MS),
            "retry.backoff.max.ms": str(RETRY_MAX_MS),
        }
        self._writing = replace(self.connection, properties=properties)
        self._administration = Administration(self.connection)
        self._reader = CommittedReader(self.connection)
        self._pool = ThreadPoolExecutor(LANES, thread_name_prefix=f"lanes-{self.slot}")

    def take(self, deadline: Deadline) -> Iterator[Entry]:
        """Claim the slot, fence the owner before, and yield what it holds that was not read yet.

        Everything is read that was committed under the slot's ids before. After an
        error, call it again: it decides what became of a transaction.

        Raises:
            FencedError: another instance claimed it meanwhile.
            CorruptionError: the topic of keys was deleted.
            OnceflowError: the brokers do not answer, or refuse.
        """
        self._leave_lanes()
        reach(CrashPoint.BEFORE_CLAIM)
        self.board.claim(self.slot, deadline)
        reach(CrashPoint.AFTER_CLAIM)
        for lane in range(LANES):
            self._lanes[self._pool.submit(self._prepare, lane)] = lane
        for prepared in self._lanes:
            _result(prepared, deadline)
            reach(CrashPoint.MID_FENCE)
        reach(CrashPoint.AFTER_FENCE)
        yield from self._unread(deadline)
        reach(CrashPoint.AFTER_HEAD_READ)

    def write(
        self,
        parts: Sequence[Part],
        entries_of: Callable[[Sequence[Sequence[Place]]], Sequence[Entry]],
        deadline: Deadline,
    ) -> None:
        """Write posts, and what is remembered of them, in one transaction.

        Args:
            parts: the posts.
            entries_of: gets the places of the records of each post, and tells what to remember.
            deadline: for all of it.

        Raises:
            OnceflowError: what became of it is known after the next `take`.
            RecordError: in particular, a record can never be written.
        """
        prepared = self._first_ready(deadline)
        lane, incarnation = self._lanes.pop(prepared), prepared.result()
        begun_s = self.clock.monotonic_s()
        try:
            self._transact(incarnation, parts, entries_of, deadline)
        except BaseException:
            incarnation.discard()
            raise
        if self.clock.monotonic_s() - begun_s < SENT_ONCE_S:
            incarnation.use_again()
        else:
            incarnation.discard()
            prepared = self._pool.submit(self._prepare, lane)
        self._lanes[prepared] = lane

    def is_claimed_by_another(self, deadline: Deadline) -> bool:
        """Whether another instance has claimed the slot since we have.

        Raises:
            OnceflowError: the brokers do not answer, or refuse.
        """
        self.board.refresh(deadline)
        return not self.board.is_mine(self.slot)

    def close(self) -> None:
        """Close connections. What is open ends with the next `take`, or with its time-out."""
        self._leave_lanes()
        self._pool.shutdown()
        self._reader.close()
        self._administration.close()

    def _transact(
        self,
        incarnation: KafkaIncarnation,
        parts: Sequence[Part],
        entries_of: Callable[[Sequence[Sequence[Place]]], Sequence[Entry]],
        deadline: Deadline,
    ) -> None:
        reach(CrashPoint.BEFORE_BEGIN)
        incarnation.begin()
        kept: list[Place] = []
        incarnation.send(self.topics.keys, [OutputRecord(self.slot, *MARK)], deadline)
        written: list[list[Place]] = [[] for _ in parts]
        for part, places in zip(parts, written, strict=True):
            incarnation.send(part.topic, part.records, deadline, _adder(places))
            reach(CrashPoint.MID_PRODUCE)
        incarnation.flush(deadline)
        reach(CrashPoint.AFTER_EFFECT)
        entries = [OutputRecord(self.slot, *entry) for entry in entries_of(written)]
        incarnation.send(self.topics.keys, entries, deadline, _adder(kept))
        incarnation.flush(deadline)
        reach(CrashPoint.BEFORE_COMMIT)
        incarnation.commit(deadline)
        reach(CrashPoint.AFTER_COMMIT)
        # The next `take` need not read them again.
        self._read_to = kept[-1][1] + 1

    def _first_ready(self, deadline: Deadline) -> Future[KafkaIncarnation]:
        """Wait until a lane is ready, or cannot be made; that shows in its result."""
        done, _ = wait(self._lanes, deadline.remaining_s(), FIRST_COMPLETED)
        for prepared in self._lanes:  # the one that has waited longest: its markers are written
            if prepared in done:
                return prepared
        expected = f"one within {deadline.budget_s:g} s"
        raise DeadlineError("no transactional id is ready", expected=expected)

    def _prepare(self, lane: int) -> KafkaIncarnation:
        """Make an incarnation that may be used as long as it is not fenced."""
        deadline = self.clock.within(PREPARE_TIMEOUT_S)
        name = gateway_transactional_id(self.gateway, self.slot, lane)
        incarnation = KafkaIncarnation(name, self._writing, is_reporting=True)
        try:
            reach(CrashPoint.LANE_REINIT)
            incarnation.initialise(deadline)
            self.board.require(self.slot, deadline)
        except BaseException:
            incarnation.discard()
            raise
        return incarnation

    def _unread(self, deadline: Deadline) -> Iterator[Entry]:
        """Yield entries up to the high watermark, and wait there for open transactions.

        Those of others could hold the last stable offset below what was committed under our ids.
        """
        name, place = self.topics.keys, (self.topics.keys, self.slot)
        require_same_topic(self.topics, self._administration, deadline)
        starts = self._administration.offsets([place], LOG_START, deadline)
        ends = self._administration.offsets([place], HIGH_WATERMARK, deadline)
        if starts is None or ends is None:
            raise RetriableError("the topic of remembered keys is gone", subject=name)
        start, end = max(self._read_to or 0, starts[place].offset), ends[place].offset
        for message in self._reader.read(*place, (start, end), deadline):
            key, value = message.key(), message.value()
            if key is not None and value is not None:
                yield key, value
            self._read_to = int(message.offset() or 0) + 1
        self._read_to = max(start, end)

    def _leave_lanes(self) -> None:
        """Drop every incarnation, also those that are still being made."""
        for prepared in self._lanes:
            if not prepared.cancel():
                prepared.add_done_callback(_discard)
        self._lanes.clear()


def _adder(places: list[Place]) -> Callable[[int, int], None]:
    return lambda partition, offset: places.append((partition, offset))


def _result(prepared: Future[KafkaIncarnation], deadline: Deadline) -> KafkaIncarnation:
    try:
        return prepared.result(deadline.remaining_s())
    except TimeoutError:
        expected = f"one within {deadline.budget_s:g} s"
        raise DeadlineError("no transactional id is ready", expected=expected) from None


def _discard(prepared: Future[KafkaIncarnation]) -> None:
    with suppress(Exception):  # it could not be made, which the next one shows
        prepared.result().discard()

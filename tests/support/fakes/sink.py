"""Kafka's transactions in memory: what the runtime's unit tests run on.

Modelled: one producer epoch per initialisation, which fences; markers that land after the commit
was acknowledged; the last stable offset; aborted records that keep their offsets; commits that
name an epoch, so that a late one cannot end a later transaction. Not modelled: replication,
retention, compaction, time-outs of transactions (call `expire`).

It passes the same contract suite as the real thing. Faults are armed by name, fire once, and are
listed in `fired` when they have.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from onceflow.clock import Clock, Deadline
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import (
    AbortableError,
    ConfigError,
    FencedError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    require,
)
from onceflow.protocol.identity import OWNER_PARTITION, head_partition, ledger_topic
from onceflow.protocol.ledger import HEAD_KEY, OWNER_KEY, HeadEntry, OwnerEntry

MAX_CLIENT_BYTES = 1_000_000
"""Records above this are refused by the client, before a broker sees them."""
APPENDER = "appender"
"""In place of a transactional id, which appenders have not."""
LOOK_S = 0.01
"""Between two looks at what is waited for."""


class Fault(Enum):
    """Faults that can happen once, for one transactional id."""

    INITIALISE_UNANSWERED = auto()
    """Older incarnations are fenced; the answer does not arrive."""
    PRODUCE_REFUSED = auto()
    """A `send` fails at its first record. Kafka itself would commit the rest."""
    DELIVERY_FAILED = auto()
    """A record fails after `send` returned; shows at the commit, which does not happen."""
    OFFSETS_REFUSED = auto()
    COMMIT_REQUEST_LOST = auto()
    """The transaction stays open; the caller knows nothing."""
    COMMIT_REQUEST_LATE = auto()
    """As lost, until `deliver_late_requests`."""
    COMMIT_ANSWER_LOST = auto()
    """It is committed; the caller knows nothing."""
    COMMIT_ANSWERED_FENCED = auto()
    """It is committed; the answer to the retried request says that the producer is fenced."""
    APPEND_REFUSED = auto()
    """Half of what an appender was given is written, then it fails. Armed for APPENDER."""


class _Decision(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(eq=False)
class _Transaction:
    """The writes of one producer epoch."""

    decision: _Decision = _Decision.OPEN
    is_marked: bool = False
    places: set[tuple[str, int]] = field(default_factory=set)
    offsets: dict[tuple[str, tuple[str, int]], int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stored:
    """One offset of a partition; a marker has no record."""

    transaction: _Transaction
    record: OutputRecord | None = None


@dataclass
class _Topic:
    partitions: list[list[_Stored]]
    max_record_bytes: int


class FakeKafka:
    """Brokers and coordinators in one. Safe for threads. Implements `sink.SinkKafka`.

    Args:
        clock: of every deadline; a ManualClock makes waiting free.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fired: list[tuple[Fault, str]] = []
        """Faults that have happened, in order."""
        self.are_markers_held = False
        """While true no marker lands: commits are acknowledged, and stay undecided to readers."""
        self.is_queue_full = False
        """While true `send` finds no room."""
        self._lock = threading.RLock()
        self._topics: dict[str, _Topic] = {}
        self._producer_epochs: dict[str, int] = defaultdict(int)
        self._transactions: dict[str, _Transaction] = {}
        self._unmarked: list[_Transaction] = []
        self._group_offsets: dict[tuple[str, tuple[str, int]], int] = {}
        self._armed: set[tuple[Fault, str]] = set()
        self._late: list[tuple[str, int]] = []

    # For tests

    def arm(self, fault: Fault, transactional_id: str) -> None:
        """Let it happen once, at the next chance."""
        self._armed.add((fault, transactional_id))

    def deliver_late_requests(self) -> None:
        """Commit requests that were late arrive now, whatever happened meanwhile."""
        with self._lock:
            for transactional_id, producer_epoch in self._late:
                if self._producer_epochs[transactional_id] == producer_epoch:
                    self._decide(transactional_id, _Decision.COMMITTED)
            self._late.clear()

    def expire(self, transactional_id: str) -> None:
        """The coordinator aborts an open transaction that took too long, and fences its writer."""
        with self._lock:
            self._producer_epochs[transactional_id] += 1
            self._decide(transactional_id, _Decision.ABORTED)

    def incarnation(self, transactional_id: str) -> FakeIncarnation:
        return FakeIncarnation(self, transactional_id)

    def appender(self) -> FakeAppender:
        return FakeAppender(self)

    def ledger(self, pipeline: str) -> FakeLedger:
        return FakeLedger(self, pipeline)

    def create_topic(
        self, name: str, partitions: int, max_record_bytes: int = MAX_CLIENT_BYTES
    ) -> None:
        with self._lock:
            logs: list[list[_Stored]] = [[] for _ in range(partitions)]
            self._topics.setdefault(name, _Topic(logs, max_record_bytes))

    def committed(self, topic: str) -> Sequence[OutputRecord]:
        """Records that a read_committed reader sees now. Due markers land right after the look."""
        with self._lock:
            seen = [
                stored.record
                for log in self._topics[topic].partitions
                for stored in log[: _last_stable_offset(log)]
                if stored.record and stored.transaction.decision is _Decision.COMMITTED
            ]
            self.land_markers()
            return seen

    def undecided(self, topic: str) -> int:
        with self._lock:
            return sum(
                len(log) - _last_stable_offset(log) for log in self._topics[topic].partitions
            )

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Offsets that lag tools see now. Due markers land right after the look."""
        with self._lock:
            seen = {
                place: offset for (g, place), offset in self._group_offsets.items() if g == group
            }
            self.land_markers()
            return seen

    # For incarnations and ledgers

    def partition_count(self, topic: str) -> int:
        """0 if it does not exist."""
        found = self._topics.get(topic)
        return len(found.partitions) if found else 0

    def high_watermark(self, topic: str, partition: int) -> int:
        return len(self._topics[topic].partitions[partition])

    def read(self, topic: str, partition: int, end: int, deadline: Deadline) -> list[OutputRecord]:
        """Committed records below `end`; waits until all of them are decided."""
        log = self._topics[topic].partitions[partition]
        self._wait(
            lambda: _last_stable_offset(log) >= end, deadline, f"reading {topic}-{partition}"
        )
        with self._lock:
            return [
                stored.record
                for stored in log[:end]
                if stored.record and stored.transaction.decision is _Decision.COMMITTED
            ]

    def initialise(self, transactional_id: str, deadline: Deadline) -> int:
        """Fence, end what is open, wait for its markers; returns the new producer epoch."""
        with self._lock:
            self._producer_epochs[transactional_id] += 1
            producer_epoch = self._producer_epochs[transactional_id]
            self._decide(transactional_id, _Decision.ABORTED)
            before = self._transactions.pop(transactional_id, None)
        is_unanswered = self.fires(Fault.INITIALISE_UNANSWERED, transactional_id)
        self._wait(
            lambda: not is_unanswered and (before is None or before not in self._unmarked),
            deadline,
            f"initialising {transactional_id}",
        )
        return producer_epoch

    def require_newest(self, transactional_id: str, producer_epoch: int) -> None:
        """Raises FencedError for an older incarnation."""
        if self._producer_epochs[transactional_id] != producer_epoch:
            raise FencedError("a newer incarnation exists", subject=transactional_id)

    def append(
        self, transactional_id: str, producer_epoch: int, topic: str, record: OutputRecord
    ) -> bool:
        """Write one record in the open transaction; False if the broker refuses its size."""
        with self._lock:
            self.require_newest(transactional_id, producer_epoch)
            transaction = self._transactions.setdefault(transactional_id, _Transaction())
            if not self._store(topic, _Stored(transaction, record)):
                return False
            transaction.places.add((topic, record.partition))
            return True

    def append_alone(self, topic: str, record: OutputRecord) -> bool:
        """The same outside any transaction: visible as soon as no open transaction precedes it."""
        decided = _Transaction(_Decision.COMMITTED, is_marked=True)
        with self._lock:
            return self._store(topic, _Stored(decided, record))

    def _store(self, topic: str, stored: _Stored) -> bool:
        record = stored.record
        assert record is not None
        if topic not in self._topics:
            raise AbortableError("no such topic", subject=topic)
        found = self._topics[topic]
        if not 0 <= record.partition < len(found.partitions):
            raise _unwritable(topic, record)
        if _size_bytes(record) > found.max_record_bytes:
            return False
        found.partitions[record.partition].append(stored)
        return True

    def add_offsets(
        self,
        transactional_id: str,
        producer_epoch: int,
        group: str,
        offsets: Mapping[tuple[str, int], int],
    ) -> None:
        with self._lock:
            self.require_newest(transactional_id, producer_epoch)
            transaction = self._transactions.setdefault(transactional_id, _Transaction())
            transaction.offsets.update({(group, place): n for place, n in offsets.items()})

    def end(self, transactional_id: str, producer_epoch: int, decision: _Decision) -> None:
        """EndTxn: acknowledged as soon as it is decided; the markers follow."""
        with self._lock:
            self.require_newest(transactional_id, producer_epoch)
            self._decide(transactional_id, decision)

    def end_late(self, transactional_id: str, producer_epoch: int) -> None:
        """A commit request goes astray until `deliver_late_requests`."""
        self._late.append((transactional_id, producer_epoch))

    def fires(self, fault: Fault, transactional_id: str) -> bool:
        """Whether a fault happens here; it will not again."""
        with self._lock:
            if (fault, transactional_id) not in self._armed:
                return False
            self._armed.remove((fault, transactional_id))
            self.fired.append((fault, transactional_id))
            return True

    def land_markers(self) -> None:
        """Let every transaction that is decided become so for readers, unless markers are held."""
        with self._lock:
            if self.are_markers_held:
                return
            for transaction in self._unmarked:
                transaction.is_marked = True
                for topic, partition in sorted(transaction.places):
                    self._topics[topic].partitions[partition].append(_Stored(transaction))
                if transaction.decision is _Decision.COMMITTED:
                    self._group_offsets.update(transaction.offsets)
            self._unmarked.clear()

    def _decide(self, transactional_id: str, decision: _Decision) -> None:
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.decision is _Decision.OPEN:
            transaction.decision = decision
            self._unmarked.append(transaction)

    def _wait(self, is_done: Callable[[], bool], deadline: Deadline, what: str) -> None:
        while True:
            self.land_markers()
            with self._lock:
                if is_done():
                    return
            deadline.check(what)
            deadline.clock.sleep(deadline.at_most_s(LOOK_S))


class _Stage(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    USED = auto()


class FakeIncarnation:
    """Implements `contracts.sink.Incarnation`."""

    def __init__(self, kafka: FakeKafka, transactional_id: str) -> None:
        self._kafka = kafka
        self._transactional_id = transactional_id
        self._producer_epoch = 0
        self._stage = _Stage.NEW
        self._failure: OnceflowError | None = None

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    def initialise(self, deadline: Deadline) -> None:
        self._leave(_Stage.NEW)
        self._producer_epoch = self._kafka.initialise(self._transactional_id, deadline)
        self._stage = _Stage.READY

    def begin(self) -> None:
        self._leave(_Stage.READY)
        self._stage = _Stage.OPEN

    def send(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        self._leave(_Stage.OPEN)
        count = 0
        for record in records:
            self._send_one(topic, record, deadline)
            count += 1
        self._stage = _Stage.OPEN
        return count

    def send_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], deadline: Deadline
    ) -> None:
        self._leave(_Stage.OPEN)
        if self._fires(Fault.OFFSETS_REFUSED):
            raise AbortableError("offsets refused", subject=group)
        self._kafka.add_offsets(self._transactional_id, self._producer_epoch, group, offsets)
        self._stage = _Stage.OPEN

    def commit(self, deadline: Deadline) -> None:
        self._leave(_Stage.OPEN)
        identity = self._transactional_id, self._producer_epoch
        self._kafka.require_newest(*identity)
        if self._failure is not None:
            raise self._failure
        if self._fires(Fault.DELIVERY_FAILED):
            raise AbortableError("a record failed", subject=self._transactional_id)
        if deadline.is_over or self._fires(Fault.COMMIT_REQUEST_LOST):
            raise OutcomeUnknownError("no answer", subject=self._transactional_id)
        if self._fires(Fault.COMMIT_REQUEST_LATE):
            self._kafka.end_late(*identity)
            raise OutcomeUnknownError("no answer", subject=self._transactional_id)
        self._kafka.end(*identity, _Decision.COMMITTED)
        if self._fires(Fault.COMMIT_ANSWER_LOST):
            raise OutcomeUnknownError("no answer", subject=self._transactional_id)
        if self._fires(Fault.COMMIT_ANSWERED_FENCED):
            raise FencedError("a newer incarnation exists", subject=self._transactional_id)

    def abort(self, deadline: Deadline) -> None:
        self._leave(_Stage.OPEN, _Stage.USED)
        try:
            self._kafka.end(self._transactional_id, self._producer_epoch, _Decision.ABORTED)
        except FencedError:
            return

    def discard(self) -> None:
        self._stage = _Stage.USED
        # Nothing of a client is left that could abort.

    def _send_one(self, topic: str, record: OutputRecord, deadline: Deadline) -> None:
        while self._kafka.is_queue_full:
            deadline.check("no room in the client's queue", subject=self._transactional_id)
            deadline.clock.sleep(deadline.at_most_s(LOOK_S))
        if self._fires(Fault.PRODUCE_REFUSED):
            raise AbortableError("a record was refused", subject=self._transactional_id)
        if _size_bytes(record) > MAX_CLIENT_BYTES:
            raise _unwritable(topic, record)
        if not self._kafka.append(self._transactional_id, self._producer_epoch, topic, record):
            self._failure = _unwritable(topic, record)

    def _fires(self, fault: Fault) -> bool:
        return self._kafka.fires(fault, self._transactional_id)

    def _leave(self, *stages: _Stage) -> None:
        """Begin a step: used up, unless the step succeeds and says otherwise."""
        require(self._stage in stages, "one transaction, in order", found=self._stage.name)
        self._stage = _Stage.USED


class FakeAppender:
    """Implements `contracts.sink.Appender`."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def append(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        queued = list(records)
        if self._kafka.fires(Fault.APPEND_REFUSED, APPENDER):
            self._append(topic, queued[: len(queued) // 2])
            raise AbortableError("an append was refused", subject=topic)
        while self._kafka.is_queue_full:
            deadline.check("no room in the client's queue", subject=topic)
            deadline.clock.sleep(deadline.at_most_s(LOOK_S))
        self._append(topic, queued)
        return len(queued)

    def close(self) -> None:
        """Nothing is held."""

    def _append(self, topic: str, records: Sequence[OutputRecord]) -> None:
        for record in records:
            if not self._kafka.append_alone(topic, record):
                raise _unwritable(topic, record)


class FakeLedger:
    """Implements `contracts.sink.Ledger`."""

    def __init__(self, kafka: FakeKafka, pipeline: str) -> None:
        self._kafka = kafka
        self._topic = ledger_topic(pipeline)

    def create(self, partitions: int, deadline: Deadline) -> None:
        self._kafka.create_topic(self._topic, partitions)
        found = self._kafka.partition_count(self._topic)
        if found < partitions:
            raise ConfigError(f"{found} partitions; expected {partitions}", subject=self._topic)

    def exists(self, deadline: Deadline) -> bool:
        return self._kafka.partition_count(self._topic) > 0

    def read_owner(self, deadline: Deadline) -> OwnerEntry | None:
        values = self._values(OWNER_PARTITION, OWNER_KEY, deadline)
        return OwnerEntry.from_json(values[-1]) if values and values[-1] else None

    def read_head(self, slot: int, deadline: Deadline) -> HeadEntry | None:
        values = self._values(head_partition(slot), HEAD_KEY, deadline)
        return HeadEntry.from_json(values[-1]) if values and values[-1] else None

    def history(self, slot: int, deadline: Deadline) -> Iterator[HeadEntry]:
        for value in self._values(head_partition(slot), HEAD_KEY, deadline):
            if value is not None:
                yield HeadEntry.from_json(value)

    def close(self) -> None:
        """Nothing is held."""

    def _values(self, partition: int, key: bytes, deadline: Deadline) -> list[bytes | None]:
        if not self.exists(deadline):
            return []
        end = self._kafka.high_watermark(self._topic, partition)
        records = self._kafka.read(self._topic, partition, end, deadline)
        return [record.value for record in records if record.key == key]


def _last_stable_offset(log: Sequence[_Stored]) -> int:
    """First offset whose transaction has no marker yet."""
    open_offsets = (n for n, stored in enumerate(log) if not stored.transaction.is_marked)
    return next(open_offsets, len(log))


def _size_bytes(record: OutputRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _unwritable(topic: str, record: OutputRecord) -> RecordError:
    return RecordError(
        f"cannot write a record with key {record.key!r} to {topic}-{record.partition}"
    )

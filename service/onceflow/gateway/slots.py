"""Posts with keys: a thread for each slot that this instance owns writes them, many at once.

There is one way to begin and to recover: take the slot, which decides every transaction before, and
read what is remembered. What became of a post whose answer got lost is then found in the memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from onceflow.clock import Clock, Deadline
from onceflow.contracts.observer import Report
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import CorruptionError, FencedError, InvariantError, OnceflowError, RecordError
from onceflow.gateway.memory import Memory
from onceflow.gateway.posts import (
    Answer,
    KeyOf,
    Place,
    accepted,
    answer_again,
    problem,
    remembered,
)
from onceflow_connectors.kafka.gateway.slot import Entry, Part, SlotWriter

TAKE_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 20.0
"""Less than what Kafka gives a transaction."""
MAX_RECORDS = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""Of one transaction, if it has more posts than one."""
LOOK_S = 0.2
"""How often an idle slot looks whether it is to end."""
PAUSES_S = (0.1, 0.5, 1.0, 2.0)
"""After failures in a row to take the slot."""
LOST_PAUSE_S = 3.0
"""After another instance has claimed the slot. One that was frozen learns meanwhile that it no
longer belongs to the group."""
SOON_S = 1
"""What a client is asked to wait before it sends a post again."""
MOVED = problem(503, "another instance takes these keys over; send it again", SOON_S, is_moved=True)
LATE = problem(503, "the brokers did not answer in time; send it again with the same key", SOON_S)

Fate: TypeAlias = tuple["KeyedPost", Answer]


@dataclass(eq=False)
class KeyedPost:
    """A post with a key, until it is answered.

    Args:
        is_alone: it may be the one whose record no broker takes, so it shares no transaction.
    """

    key: KeyOf
    topic: str
    records: Sequence[OutputRecord]
    size_bytes: int
    deadline: Deadline
    waiter: asyncio.Future[Answer]
    is_alone: bool = False


@dataclass
class Slot:
    """One slot while this instance is to own it.

    Args:
        settle: hands answers to those who wait for them.
        failed: told an error after which this process must not go on.
        interval_s: tells the least time between the beginnings of two transactions.
    """

    number: int
    writer: SlotWriter
    memory: Memory
    clock: Clock
    report: Report
    settle: Callable[[Sequence[Fate]], None]
    failed: Callable[[OnceflowError], None]
    interval_s: Callable[[], float]
    is_serving: bool = False
    """Whether it was taken, and posts are written."""
    _queue: deque[KeyedPost] = field(default_factory=deque)
    _is_ended: bool = False
    _begun_s: float = 0.0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot-{self.number}", daemon=True)

    def start(self) -> None:
        """Take the slot, and write what is submitted."""
        self._thread.start()

    def submit(self, post: KeyedPost) -> bool:
        """Queue a post, which is then answered for certain; False if the slot is no longer ours."""
        with self._changed:
            if self._is_ended:
                return False
            self._queue.append(post)
            self._changed.notify()
        return True

    def end(self, timeout_s: float) -> None:
        """Leave the slot after the running transaction. Posts that wait are answered `MOVED`."""
        self._stop.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    self._take()
                    failures = 0
                    self._write_groups()
                except (CorruptionError, InvariantError) as error:
                    self.failed(error)
                    return
                except OnceflowError as error:
                    self.is_serving = False
                    self._pause_after(error, failures)
                    failures += 1
        except BaseException as error:
            self.failed(InvariantError("a slot has failed", found=repr(error)))
            raise
        finally:
            self.is_serving = False
            self._give_up()
            self.writer.close()

    def _take(self) -> None:
        for hashed, value in self.writer.take(self.clock.within(TAKE_TIMEOUT_S)):
            self.memory.add(hashed, value)
        self.is_serving = True
        self.report("slot_taken", slot=self.number, keys=len(self.memory))

    def _write_groups(self) -> None:
        while not self._stop.is_set():
            if group := self._next_group():
                self._handle(group)

    def _pause_after(self, error: OnceflowError, failures: int) -> None:
        text = f"slot {self.number} is taken again: {error}"
        self.report("warning", text=text, slot=self.number, error=type(error).__name__)
        is_lost = isinstance(error, FencedError) and self._is_claimed_by_another()
        until = self.clock.within(LOST_PAUSE_S if is_lost else _pause_s(failures))
        while not until.is_over and not self._stop.wait(until.at_most_s(LOOK_S)):
            self._settle_late()
        self._settle_late()

    def _is_claimed_by_another(self) -> bool:
        try:
            return self.writer.is_claimed_by_another(self.clock.within(LOST_PAUSE_S))
        except OnceflowError:
            return False

    def _next_group(self) -> Sequence[KeyedPost]:
        """Wait for posts; return those that go into the next transaction."""
        with self._changed:
            if not self._queue:
                self._changed.wait(LOOK_S)
            if not self._queue:
                return ()
        wait_s = self._begun_s + self.interval_s() - self.clock.monotonic_s()
        if wait_s > 0:
            self._stop.wait(wait_s)
        self._begun_s = self.clock.monotonic_s()
        with self._changed:
            return [*self._cut()]

    def _cut(self) -> Iterator[KeyedPost]:
        records = size_bytes = 0
        while self._queue:
            first = self._queue[0]
            records += len(first.records)
            size_bytes += first.size_bytes
            is_first = records == len(first.records)
            if not is_first and (first.is_alone or records > MAX_RECORDS or size_bytes > MAX_BYTES):
                return
            yield self._queue.popleft()
            if first.is_alone:
                return

    def _handle(self, group: Sequence[KeyedPost]) -> None:
        """Answer what is known, write the rest, and put back what waits for another post's fate."""
        fates: list[Fate] = []
        fresh: dict[bytes, KeyedPost] = {}
        waiting: list[KeyedPost] = []
        now_ms = self.clock.unix_ms()
        room = self.memory.room(now_ms)
        for post in group:
            known = self.memory.find(post.key.hashed)
            if known is not None:
                fates.append((post, answer_again(post.key, known)))
            elif post.key.hashed in fresh:
                waiting.append(post)
            elif post.deadline.is_over:
                fates.append((post, LATE))
            elif len(fresh) >= room:
                fates.append((post, self._full(now_ms)))
            else:
                fresh[post.key.hashed] = post
        self._put_back(waiting)
        self.settle(fates)
        if fresh:
            self._write([*fresh.values()])

    def _write(self, posts: Sequence[KeyedPost]) -> None:
        entries: list[Entry] = []
        places: list[Sequence[Place]] = []

        def entries_of(written: Sequence[Sequence[Place]]) -> Sequence[Entry]:
            places.extend(written)
            at_ms = self.clock.unix_ms()
            for post, found in zip(posts, written, strict=True):
                value = remembered(post.key, post.topic, found, at_ms)
                entries.append((post.key.hashed, value))
            return entries

        parts = [Part(post.topic, post.records) for post in posts]
        try:
            self.writer.write(parts, entries_of, self.clock.within(WRITE_TIMEOUT_S))
        except RecordError as error:
            self._split(posts, error)
            raise
        except OnceflowError:
            # They may be written. That shows when the slot is taken again.
            self._put_back(posts)
            raise
        for hashed, value in entries:
            self.memory.add(hashed, value)
        fates = [(p, accepted(p.topic, at)) for p, at in zip(posts, places, strict=True)]
        self.settle(fates)

    def _split(self, posts: Sequence[KeyedPost], error: RecordError) -> None:
        """Nothing was written. Find out which post it is, by writing each alone."""
        if len(posts) == 1:
            detail = f"the brokers refuse a record of {posts[0].topic}: {error.found}"
            self.settle([(posts[0], problem(422, detail))])
            return
        for post in posts:
            post.is_alone = True
        self._put_back(posts)

    def _full(self, now_ms: int) -> Answer:
        wait_s = max(SOON_S, min(60, (self.memory.full_until_ms() - now_ms) // 1000))
        detail = "no further Idempotency-Key can be remembered now; nothing was written"
        return problem(503, detail, int(wait_s))

    def _put_back(self, posts: Sequence[KeyedPost]) -> None:
        with self._changed:
            self._queue.extendleft(reversed(posts))

    def _settle_late(self) -> None:
        with self._changed:
            late = [post for post in self._queue if post.deadline.is_over]
            self._queue = deque(post for post in self._queue if not post.deadline.is_over)
        self.settle([(post, LATE) for post in late])

    def _give_up(self) -> None:
        with self._changed:
            self._is_ended = True
            left, self._queue = [*self._queue], deque()
        self.settle([(post, MOVED) for post in left])


def _pause_s(failures: int) -> float:
    return PAUSES_S[min(failures, len(PAUSES_S) - 1)]

"""The consumer, independent of its client library: users iterate, commit and seek."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from types import TracebackType
from typing import Any, ClassVar, Self

from onceflow.clock import SystemClock
from onceflow.contracts.record import Record
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import CorruptionError, LineageError, OnceflowError, require
from onceflow.protocol.identity import pipeline_of_tag
from onceflow_connectors.consumer.admission import (
    NO_HOOKS,
    STRICT,
    Admission,
    Counters,
    Hooks,
    Rules,
    pipeline_text,
)
from onceflow_connectors.consumer.client import NO_PROPERTIES, Client, Subscription
from onceflow_connectors.consumer.holdings import Holdings, Progress
from onceflow_connectors.consumer.records import Partition, Position, name_of

POLL_SLICE_S = 1.0
"""How long an iteration waits inside the client before it looks at signals again."""


class FilteringConsumer:
    """Delivers each record of Onceflow's output once. Not thread-safe.

    Guaranteed under the default `Rules`: within one process every sequence of a pipeline is
    delivered once and in order per partition, whatever is written or read again. After a crash or
    a rebalance, what was delivered and not committed is delivered again, and nothing else. To get
    each effect exactly once, store `position()` in one database transaction with the effect, and
    refuse to move it back.

    Not guaranteed: any order between partitions.
    """

    def __init__(self, client: Client, rules: Rules, hooks: Hooks) -> None:
        self.counters = Counters()
        self._client = client
        self._admission = Admission(rules, hooks, self.counters)
        self._holdings = Holdings(client, rules, hooks)
        self._buffer: deque[Record] = deque()
        self._is_open = False

    def __enter__(self) -> Self:
        """Join the group.

        Raises:
            ConfigError: see `Client.start`; or the group has no offset, where the rules refuse
                that.
        """
        with ExitStack() as undo:
            undo.callback(self._client.stop)
            self._client.start(self._holdings)
            self._holdings.check_offsets()
            undo.pop_all()
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the group. Commits nothing: only the user knows which effects are done."""
        self._is_open = False
        self._buffer.clear()
        self._holdings.release()
        self._client.stop()

    def __iter__(self) -> Iterator[Record]:
        """Yield records while the consumer is open; wait when there are none."""
        while self._is_open:
            record = self.poll(POLL_SLICE_S)
            if record is not None:
                yield record

    def poll(self, timeout_s: float) -> Record | None:
        """The next record, or None if none came in time.

        An error leaves the position unchanged: the next call meets the same record again.

        Raises:
            CorruptionError: a gap, a divergence, an unreadable header, or a log that is shorter
                than it was.
            LineageError: a pipeline lost its ledger and began again at sequence 1.
            RecordError: a foreign record, where the rules refuse it.
            ConfigError: the group's offsets were committed by another program.
        """
        require(self._is_open, "a consumer is used inside its `with` block only")
        deadline = SystemClock().within(timeout_s)
        record = self._next_admitted()
        while record is None:
            self._buffer.extend(self._client.poll(deadline.remaining_s(), 1))
            record = self._next_admitted()
            if deadline.is_over:
                break
        return record

    def take(self, most: int, timeout_s: float) -> Sequence[Record]:
        """The next records, at most `most` of them; waits for them, but not longer than this time.

        Takes a fifth of the time of as many calls of `poll`. What an error concerns comes with the
        next call if there are records before it.

        Raises:
            OnceflowError: as `poll`.
        """
        require(self._is_open, "a consumer is used inside its `with` block only")
        deadline = SystemClock().within(timeout_s)
        taken = self._take_buffered(most)
        while not taken:
            self._buffer.extend(self._client.poll(deadline.remaining_s(), most))
            taken = self._take_buffered(most)
            if deadline.is_over:
                break
        return taken

    def commit(self) -> None:
        """Store position and filter of every partition that moved, in the group's offsets.

        Covers every record that was delivered: call it when their effects are done.

        Raises:
            AbortableError: partitions went to another member, which will deliver again what was
                not committed; undo these effects if possible, and continue polling.
            RetriableError: a rebalance or a move of the coordinator is under way; poll, then call
                again.
        """
        reach(CrashPoint.AFTER_EFFECT)
        moved = self._holdings.moved()
        positions = [progress.position() for progress in moved]
        reach(CrashPoint.BEFORE_OFFSET_COMMIT)
        if positions:
            self._client.commit(positions)
        for progress, position in zip(moved, positions, strict=True):
            progress.stored = position
            progress.is_moved = False

    def position(self, topic: str, partition: int) -> Position:
        """The position of one partition after the last record that was delivered.

        Store it with the effects, in one transaction that also checks that the position which it
        replaces is the one before these effects: a member that lost the partition may still be
        writing.

        Raises:
            InvariantError: nothing was read of that partition, or this member does not hold it.
        """
        return self._holdings.position((topic, partition))

    def take_positions(self) -> Sequence[Position]:
        """Positions of all partitions that moved since this was last called, to be stored at once.

        For those who write many records in one transaction, with `Hooks.load_position`; store them
        as `position` says. Includes partitions that held nothing but repeats.

        Raises:
            RetriableError: a rebalance is under way; poll, then call again.
        """
        return self._holdings.take_moved()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition again from `offset`, or skip to it.

        Records that were delivered are not delivered again: going back yields only new ones, and
        skipping records is a gap. To get records again, use another group.

        Raises:
            InvariantError: this member does not hold the partition.
        """
        progress = self._holdings.progress((topic, partition))
        self._client.seek(progress.partition, offset)
        kept = (r for r in self._buffer if (r.topic, r.partition) != progress.partition)
        self._buffer = deque(kept)
        progress.offset = offset
        progress.is_moved = True

    def next_offset(self, topic: str, partition: int) -> int | None:
        """The next offset to read of a partition; None if nothing was read from its start.

        Raises:
            InvariantError: this member does not hold it.
        """
        return self._holdings.progress((topic, partition)).offset

    def assignment(self) -> Sequence[Partition]:
        """Topic and number of the partitions that this member holds at the moment."""
        return self._holdings.partitions()

    def _next_admitted(self) -> Record | None:
        while self._buffer:
            record = self._buffer[0]
            progress = self._holdings.progress((record.topic, record.partition))
            _check_order(record, progress)
            is_delivered = self._admit(record, progress)
            progress.offset = record.offset + 1
            progress.is_moved = True
            self._buffer.popleft()
            if is_delivered:
                return record
        return None

    def _take_buffered(self, most: int) -> Sequence[Record]:
        taken: list[Record] = []
        try:
            while len(taken) < most and (record := self._next_admitted()) is not None:
                taken.append(record)
                taken += self._take_followers(record, most - len(taken))
        except Exception:
            # The record stays first in the buffer, so the next call raises this again.
            if not taken:
                raise
        return taken

    def _take_followers(self, record: Record, most: int) -> Sequence[Record]:
        """Records of the same batch that come next, and so need no decision."""
        progress = self._holdings.progress((record.topic, record.partition))
        following = islice(self._buffer, most)
        count = self._admission.admit_followers(record, following, progress.filter)
        found = [self._buffer.popleft() for _ in range(count)]
        if found:
            progress.offset = found[-1].offset + 1
        return found

    def _admit(self, record: Record, progress: Progress) -> bool:
        try:
            return self._admission.admit(record, progress.filter)
        except LineageError as error:
            error.subject = f"{record}, {self._pipeline_text(record)}"
            raise

    def _pipeline_text(self, record: Record) -> str:
        """Name of the pipeline if its ledger can be seen, otherwise its tag."""
        tag = record.header.pipeline_tag if record.header else 0
        with suppress(OnceflowError):  # the record is refused anyway
            if name := pipeline_of_tag(tag, self._client.topic_names()):
                return f"pipeline {name}"
        return pipeline_text(tag)


class GroupConsumer(FilteringConsumer):
    """Reads Onceflow's output once; see `FilteringConsumer` for what that means.

    Guarantee: exactly once with `position()` in the user's own transaction; with `commit()` at
    least once across crashes and rebalances, repeating only what was not committed.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        group: position and filter are stored in the offsets of this consumer group. Members on
            both client libraries may share one.
        topics: to read.
        rules: what to do about gaps, divergences and foreign records.
        hooks: functions to call.
        properties: further settings of the client library, e.g. for security.
    """

    client_of: ClassVar[staticmethod[[Subscription], Client]]

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        group: str,
        topics: Sequence[str],
        rules: Rules = STRICT,
        hooks: Hooks = NO_HOOKS,
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> None:
        subscription = Subscription(bootstrap_servers, group, topics, properties)
        super().__init__(self.client_of(subscription), rules, hooks)


def _check_order(record: Record, progress: Progress) -> None:
    """Check for a truncated log: only then does a client go back by itself."""
    if progress.offset is not None and record.offset < progress.offset:
        raise CorruptionError(
            "the partition is shorter than it was",
            subject=name_of(progress.partition),
            expected=f"offset {progress.offset} or later",
            found=f"offset {record.offset}",
            then="it was truncated or created again; delivery stops",
        )

"""Carries records from a consumer to a target, batch by batch, in order, until it is told to end.

The position is in the target, written in one step with the rows. So nothing here has to be durable:
a crash, a lost answer and a rebalance all end with reading the position again.

While a batch is written, the next one is read: at most one is under way. All calls of the target
come from one thread, which the carrier has for them. Whatever looks at the target, or gives a
partition away, waits for the batch that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Protocol, TypeVar

from onceflow.clock import Clock
from onceflow.contracts.connector import Place
from onceflow.contracts.observer import Report
from onceflow.contracts.record import Record
from onceflow.contracts.target import Claim, Mark, Move, Target
from onceflow.crashpoints import CrashPoint, reach
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.decoding import Decoded, Decodes
from onceflow.delivery.model import BatchLimits
from onceflow.delivery.pace import Pace
from onceflow.delivery.pending import Pending
from onceflow.delivery.reading import RecordReader
from onceflow.delivery.rejects import REFUSED, UNREADABLE, Rejects
from onceflow.errors import (
    AbortableError,
    DeadlineError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow_connectors.consumer import Gap, Hooks, Partition, Position

TAKEN_AT_ONCE = 500
"""Records, of which nothing but the size of those before is known."""
IDLE_POLL_S = 0.5
"""Longest wait for a first record; a drain is noticed after it."""
PAUSE_SLICE_S = 0.2
"""The same while the target is left alone."""
FINISH_CHECK_S = 2.0
"""Between looks whether everything is delivered, while records keep coming."""
TAKEN_OVER_PAUSE_S = 1.0
"""Before this instance joins again, after another has claimed a partition of it."""

_PASSING = (RetriableError, DeadlineError, OutcomeUnknownError)
"""After these, the same call may succeed."""

T = TypeVar("T")


class DrainedError(Exception):
    """The delivery ends while a target does not answer. Nothing is lost: see the module."""


class Stop(Protocol):
    """When to end: a `threading.Event`, or anything that can be asked."""

    def is_set(self) -> bool:
        """Whether to end after the batch that is under way."""


class IsFinished(Protocol):
    """Asked whether all records that a delivery is to deliver are in the target."""

    def __call__(self, *, is_idle: bool) -> bool:
        """Whether they are; `is_idle` if no record came."""


class Carrier:
    """One delivery in one process.

    Args:
        consumer: makes a consumer with these hooks, which joins when it is entered.
        claim: claims a partition at the target; an answer without a mark begins at the start.
        is_finished: asked whenever no record came, and now and then.
        stop: set to end after the running batch.
    """

    def __init__(  # noqa: PLR0913  each is another part of a delivery
        self,
        *,
        consumer: Callable[[Hooks], AbstractContextManager[RecordReader]],
        target: Target,
        claim: Callable[[Place], Claim],
        decoder: Decodes,
        rejects: Rejects,
        limits: BatchLimits,
        breaker: Breaker,
        pace: Pace | None,
        max_age_ms: int | None,
        clock: Clock,
        report: Report,
        stop: Stop,
        is_finished: IsFinished,
    ) -> None:
        self._consumer = consumer
        self._target = target
        self._claim_at_target = claim
        self._decoder = decoder
        self._rejects = rejects
        self._limits = limits
        self._breaker = breaker
        self._pace = pace
        self._max_age_ms = max_age_ms
        self._clock = clock
        self._report = report
        self._stop = stop
        self._is_finished = is_finished
        self._pending = Pending()
        self._claims: dict[Place, Claim] = {}
        self._begun: dict[Place, int] = {}
        """Ends of what an earlier instance began to send, and this one has not read again yet."""
        self._via: dict[Place, Mark] = {}
        """Positions at those ends, once they were reached."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="target")
        self._under_way: Future[Sequence[Move]] | None = None
        """The write of a batch; its result is what has moved."""
        self._gives_up = Event()
        """Set while the batch under way is not worth a further try: it will be read again."""

    def run(self) -> str:
        """Deliver until everything is there, or a drain is asked for.

        Returns:
            Which of them, as an event to report: `caught_up` or `drained`.

        Raises:
            ConfigError: the target does not fit, or refuses this delivery.
            RecordError: a record was rejected, where the delivery stops at that.
            RetriableError: the target did not answer, and the attempts are used up.
            CorruptionError, LineageError: the topic's history is not whole.
        """
        with self._thread:
            try:
                return self._run()
            finally:
                self._thread.submit(self._target.close)

    def _run(self) -> str:
        with suppress(DrainedError):
            self._ask(self._target.check)
            while not self._stop.is_set():
                if self._carry_until_taken_over():
                    return "caught_up"
        return "drained"

    def _carry_until_taken_over(self) -> bool:
        """Join, and carry. Returns whether everything is delivered."""
        self._pending = Pending()
        self._claims.clear()
        self._begun.clear()
        self._via.clear()
        hooks = Hooks(load_position=self._claim, on_revoked=self._forget, on_gap=self._warn_of_gap)
        try:
            with self._consumer(hooks) as records:
                return self._carry_whole(records)
        except AbortableError as error:
            self._report("warning", text=str(error))
            self._pause(TAKEN_OVER_PAUSE_S)
            return False

    def _carry_whole(self, records: RecordReader) -> bool:
        """Carry, and end with no batch under way."""
        try:
            is_finished = self._carry(records)
        except BaseException:
            self._gives_up.set()
            with suppress(Exception):
                self._settle()
            self._gives_up.clear()
            raise
        self._settle()
        return is_finished

    def _carry(self, records: RecordReader) -> bool:
        check = self._clock.within(FINISH_CHECK_S)
        while not self._stop.is_set():
            is_idle = self._collect_patiently(records)
            if self._begun:
                self._require_room()
                continue
            self._flush(records)
            if is_idle or check.is_over:
                if self._ask(partial(self._is_finished, is_idle=is_idle)):
                    return True
                check = self._clock.within(FINISH_CHECK_S)
        return False

    def _ask(self, call: Callable[..., T], *values: object) -> T:
        """Make a call of the target until it succeeds, after the batch that is under way."""
        self._settle()
        return self._thread.submit(self._patiently, call, *values).result()

    def _settle(self) -> None:
        """Wait for the batch that is under way, and take over what has moved.

        Raises:
            Exception: as its write did.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            for move in under_way.result():
                self._claims[move.claim.place] = replace(move.claim, mark=move.to, intent=None)
                self._via.pop(move.claim.place, None)

    def _collect_patiently(self, records: RecordReader) -> bool:
        """As `_collect`, until it succeeds; a partition may have to be claimed in it."""
        has_failed = False
        while True:
            try:
                is_idle = self._collect(records)
            except _PASSING as error:
                has_failed = True
                self._settle()
                self._thread.submit(self._wait_until_well, error).result()
            else:
                if has_failed:
                    self._settle()
                    self._resume()
                return is_idle

    def _collect(self, records: RecordReader) -> bool:
        """Read until a batch is full, or its first record has waited long enough.

        After an error, call it again: what was read stays. While `_begun` is not empty, the batch
        lacks records that it must hold: they are in the topic, so call it again.

        Returns:
            Whether there was nothing to read.
        """
        limits, clock = self._limits, self._clock
        most = limits.max_records
        if self._pace is not None:
            most = min(most, self._pace.records_per_second)
        until = clock.within(limits.max_delay_ms / 1000)
        is_complete = False
        # Polls at least once, also if the batch is full: a rebalance may have to end first.
        while not is_complete:
            is_first = not self._pending
            wait_s = IDLE_POLL_S if is_first else until.remaining_s()
            came = records.take(self._room(most), wait_s)
            if self._begun:
                self._pass_ends(records)
            if not came:
                return not self._pending
            if is_first:
                until = clock.within(limits.max_delay_ms / 1000)
            self._keep(came)
            is_complete = len(self._pending) >= most or until.is_over
            is_complete = is_complete or self._pending.size_bytes >= limits.max_bytes
        return False

    def _room(self, most: int) -> int:
        """How many records to take at once: few, if their size is not known."""
        pending = self._pending
        if not pending.records or self._begun:
            return 1
        mean_bytes = max(1, pending.size_bytes // len(pending.records))
        room_bytes = (self._limits.max_bytes - pending.size_bytes) // mean_bytes
        return max(1, min(TAKEN_AT_ONCE, most - len(pending), room_bytes))

    def _keep(self, came: Sequence[Record]) -> None:
        if self._max_age_ms is None:
            self._pending.add(came)
            return
        for record in came:
            if self._is_too_old(record):
                self._pending.drop(record)
            else:
                self._pending.add([record])

    def _pass_ends(self, records: RecordReader) -> None:
        """Note the position at each end that was reached."""
        held = records.assignment()
        for place, end in [*self._begun.items()]:
            if place not in held:  # claimed again when it comes back
                del self._begun[place]
                continue
            offset = records.next_offset(*place) or 0
            if offset >= end:
                del self._begun[place]
            if offset == end:
                position = records.position(*place)
                self._via[place] = Mark(position.offset, position.state)

    def _require_room(self) -> None:
        """Bound what other partitions bring while records of a begun batch are waited for.

        Raises:
            AbortableError: it is too much; read all again.
        """
        begun = (self._claims[place] for place in self._begun)
        starts = sum(claim.mark.offset if claim.mark else 0 for claim in begun)
        room = sum(self._begun.values()) - starts + 2 * self._limits.max_records
        if len(self._pending) < room:
            return
        ends = ", ".join(f"{topic}[{n}]@{end}" for (topic, n), end in self._begun.items())
        raise AbortableError(
            "records that were being sent do not come, and others fill the memory",
            subject=ends,
            expected="records of these partitions before that offset",
            then="everything is read again from the stored positions",
        )

    def _flush(self, records: RecordReader) -> None:
        """Have what was read written, with its positions."""
        try:
            positions = records.take_positions()
        except RetriableError:
            return  # a rebalance: it ends in the next polls, and decides what stays here
        if not positions:
            return
        if self._pace is not None:
            self._pause(self._pace.delay_s(len(self._pending), self._clock.monotonic_s()))
        self._settle()
        pending, self._pending = self._pending, Pending()
        moves = [self._move(position) for position in positions]
        repeats = records.counters.discarded
        self._under_way = self._thread.submit(self._deliver, pending, moves, repeats)

    def _deliver(self, pending: Pending, moves: Sequence[Move], repeats: int) -> Sequence[Move]:
        """Write a batch and its positions. Runs in the thread of the target."""
        began_s = self._clock.monotonic_s()
        rejected_before = self._rejects.count
        reach(CrashPoint.BEFORE_BEGIN)
        decoded = self._decoder.decoded(pending.records)
        if decoded.unreadable:
            self._patiently(self._rejects.take, UNREADABLE, decoded.unreadable)
        dropped = pending.dropped_count
        if dropped:
            self._patiently(self._rejects.note, [*pending.dropped.values()])
            self._report("warning", text=f"{dropped:,} records had waited for too long: dropped")
        written = self._write(decoded, moves)
        seconds = self._clock.monotonic_s() - began_s
        self._report(
            "batch",
            records=written,
            rejected=self._rejects.count - rejected_before,
            dropped=dropped,
            repeats=repeats,
            seconds=round(seconds, 3),
        )
        return moves

    def _is_too_old(self, record: Record) -> bool:
        most_ms = self._max_age_ms
        if most_ms is None or self._clock.unix_ms() - record.timestamp_ms <= most_ms:
            return False
        # What an earlier instance began to send belongs to its batch, whatever its age.
        claim = self._claims.get((record.topic, record.partition))
        return claim is None or claim.intent is None or record.offset >= claim.intent.until

    def _move(self, position: Position) -> Move:
        claim = self._claims[position.topic, position.partition]
        via = self._via.get(claim.place)
        return Move(claim, Mark(position.offset, position.state), via)

    def _write(self, decoded: Decoded, moves: Sequence[Move]) -> int:
        """Write until it is done, without what is refused.

        Returns:
            How many records were written.
        """
        while True:
            batch = decoded.batch(moves)
            try:
                self._patiently(self._target.write, batch)
            except RecordError:
                refused = self._patiently(self._target.refused, batch)
                if not refused:
                    raise
                found = [(decoded.records[n], why) for n, why in sorted(refused.items())]
                self._patiently(self._rejects.take, REFUSED, found)
                decoded = decoded.without(frozenset(refused))
            else:
                return len(decoded.records)

    def _claim(self, topic: str, partition: int) -> Position | None:
        self._settle()
        reach(CrashPoint.BEFORE_CLAIM)
        # Not patiently: the consumer asks again, and serves the group meanwhile.
        claim = self._thread.submit(self._claim_at_target, (topic, partition)).result()
        reach(CrashPoint.AFTER_CLAIM)
        self._claims[topic, partition] = claim
        self._via.pop(claim.place, None)
        self._begun.pop(claim.place, None)
        if claim.intent is not None:
            self._begun[claim.place] = claim.intent.until
        if claim.mark is None:
            return None
        return Position(topic, partition, claim.mark.offset, claim.mark.state)

    def _forget(self, lost: Sequence[Partition]) -> None:
        """Forget records that another instance, or this one, reads again."""
        if self._under_way is not None:
            wait([self._under_way])
        self._pending = self._pending.without_partitions(frozenset(lost))

    def _warn_of_gap(self, gap: Gap) -> None:
        text = (
            f"records are missing before {gap.record}: sequences {gap.first_missing} to"
            f" {gap.last_missing}"
        )
        self._report("warning", text=text)

    def _patiently(self, call: Callable[..., T], *values: object) -> T:
        """Make a call until it succeeds; between two failures, leave the target alone."""
        while True:
            try:
                result = call(*values)
            except _PASSING as error:
                self._wait_until_well(error)
            else:
                self._resume()
                return result

    def _resume(self) -> None:
        if self._breaker.is_open:
            self._breaker.succeed()
            self._report("resumed")

    def _wait_until_well(self, error: OnceflowError) -> None:
        while True:
            delay_s = self._breaker.fail()
            if delay_s is None:
                raise error
            failures = self._breaker.failures
            delay_s = round(delay_s, 3)
            self._report("waiting", reason=str(error), failures=failures, retry_in_s=delay_s)
            self._pause(delay_s)
            try:
                self._target.probe()
            except _PASSING as again:
                error = again
            else:
                return

    def _pause(self, seconds: float) -> None:
        until = self._clock.within(seconds)
        while not until.is_over:
            self._require_time()
            self._clock.sleep(until.at_most_s(PAUSE_SLICE_S))
        self._require_time()

    def _require_time(self) -> None:
        if self._stop.is_set() or self._gives_up.is_set():
            raise DrainedError

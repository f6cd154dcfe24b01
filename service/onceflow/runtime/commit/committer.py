"""Executes the actions of `protocol.commit` on real lanes and a real ledger. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from onceflow.clock import Clock, Deadline
from onceflow.contracts.observer import Observer
from onceflow.contracts.sink import Appender, Incarnation, Ledger, OutputRecord
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import (
    AbortableError,
    CorruptionError,
    DeadlineError,
    FencedError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
    require,
)
from onceflow.protocol.commit import (
    Action,
    CommitState,
    Event,
    HeadRead,
    Phase,
    start,
    step,
)
from onceflow.protocol.identity import (
    DRIVER_SLOT,
    consumer_group,
    head_partition,
    ledger_topic,
)
from onceflow.protocol.ledger import HEAD_KEY, HeadEntry
from onceflow.protocol.proposal import BatchProposal, HeadProposal
from onceflow.protocol.takeover import is_mine
from onceflow.runtime.commit.lanes import Lane, LanePool

_T = TypeVar("_T")
_Write: TypeAlias = Callable[[str, Sequence[OutputRecord], Deadline], int]

MAX_STEPS = 200
"""Actions for one proposal: MAX_ATTEMPTS transactions of 9 actions, with room; more is a bug."""

_EVENT_OF: Mapping[type[OnceflowError], Event] = {
    FencedError: Event.FENCED,
    OutcomeUnknownError: Event.UNKNOWN,
    RecordError: Event.REFUSED_FOR_GOOD,
    AbortableError: Event.REFUSED,
    DeadlineError: Event.REFUSED,
    RetriableError: Event.REFUSED,
}
"""What a write reports when it fails; any other error ends the commit."""

_OUTCOMES: Mapping[Event, str] = {Event.DONE: "committed", Event.UNKNOWN: "unknown"}
"""Ends of a commit, for the observer; after others the transaction is aborted."""

_CRASH_POINTS: Mapping[Action, CrashPoint] = {
    Action.BEGIN: CrashPoint.BEFORE_BEGIN,
    Action.SEND_HEAD: CrashPoint.BEFORE_HEAD,
    Action.COMMIT: CrashPoint.BEFORE_COMMIT,
}


@dataclass(frozen=True)
class Payload:
    """The records written together with `head`.

    Args:
        records: in the order in which they are numbered.
        letters: topic -> dead letters, which are not numbered.
        offsets: source position after the batch, for the pipeline's consumer group.
    """

    topic: str = ""
    records: Sequence[OutputRecord] = ()
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    letters: Mapping[str, Sequence[OutputRecord]] = field(default_factory=dict)


@dataclass(frozen=True)
class Committer:
    """Leads one proposal at a time from its judgement to its end.

    Args:
        appender: for the modes whose records are in no transaction.
        ledger: used by the thread that commits alone.
        transaction_timeout_s: to acquire a lane, send everything and commit, per attempt.
        resolve_timeout_s: to find out what became of a commit whose answer was lost.
    """

    pipeline: str
    run_id: str
    pool: LanePool
    appender: Appender
    ledger: Ledger
    clock: Clock
    transaction_timeout_s: float
    resolve_timeout_s: float
    observer: Observer = field(default_factory=Observer)

    def commit(
        self,
        proposal: BatchProposal | HeadProposal,
        head: HeadEntry | None,
        payload: Payload,
    ) -> Phase:
        """Write the proposal, or find that it is written.

        Returns:
            COMMITTED or SKIPPED. In both cases `proposal.entry` is what the ledger holds as far as
            sequences and ranges are concerned.

        Raises:
            FencedError: a newer instance owns the pipeline; this one can commit nothing more.
            CorruptionError: checkpoint and ledger contradict each other; nothing was written.
            RecordError: a record can never be written; nothing was committed.
            OutcomeUnknownError: sent, not answered, and the ledger could not be read in time.
            AbortableError, DeadlineError: every attempt was aborted; nothing was committed.
            RecordError, AbortableError, DeadlineError of a batch of at_most_once: it may also be
                committed, with its records refused; then the message says so.
        """
        work = _Work(self, proposal.entry, payload)
        state, actions = start(proposal, head)
        for _ in range(MAX_STEPS):
            answers = [work.do(action) for action in actions]
            if state.phase.is_final:
                break
            state, actions = step(state, answers[-1])
        require(state.phase.is_final, "a proposal ends", found=state.phase.name)
        return self._conclude(state, work)

    def _conclude(self, state: CommitState, work: _Work) -> Phase:
        batch = work.entry.batch
        subject = f"batch {batch.batch_id} of query {batch.query_id}"
        match state.phase:
            case Phase.STOPPED:
                raise FencedError.by_newer_instance(self.pipeline, self.run_id)
            case Phase.HALTED:
                raise CorruptionError(
                    "checkpoint and ledger contradict each other",
                    subject=subject,
                    expected=state.judgement.expected,
                    found=state.judgement.found,
                    then="halting; nothing was written",
                )
            case Phase.FAILED | Phase.LOST:
                require(work.refusal is not None, "a failed proposal was refused")
                refusal = work.refusal or AbortableError("refused")
                if isinstance(refusal, DeadlineError):
                    refusal.then = (
                        f"{subject} took longer than transaction_timeout"
                        f" ({self.transaction_timeout_s:g} s): if the brokers are well, start again"
                        " with a longer one, up to the brokers' transaction.max.timeout.ms"
                    )
                if state.phase is Phase.LOST:
                    refusal.then = f"{subject} is committed and not written again: at_most_once"
                raise refusal
        return state.phase


class _Work:
    """One call of `commit`: what it writes, the lane and the time that it has, what refused it."""

    def __init__(self, committer: Committer, entry: HeadEntry, payload: Payload) -> None:
        self.entry = entry
        self.refusal: OnceflowError | None = None
        self._committer = committer
        self._payload = payload
        self._lane: Lane | None = None
        self._budget = self._within(committer.transaction_timeout_s)

    def do(self, action: Action) -> Event | HeadRead:
        """Carry out an action and report what came of it."""
        if action in _CRASH_POINTS:
            reach(_CRASH_POINTS[action])
        match action:
            case Action.ACQUIRE_LANE:
                return self._acquire_lane()
            case Action.COMMIT:
                return self._commit()
            case Action.ABORT:
                return self._abort()
            case Action.RESETTLE_LANE:
                return self._resettle()
            case Action.READ_OWNER:
                return self._read_owner()
            case Action.READ_HEAD:
                ledger = self._committer.ledger
                return HeadRead(self._resolving(lambda d: ledger.read_head(DRIVER_SLOT, d)))
        return self._try(lambda: self._write(action))

    def _write(self, action: Action) -> None:
        match action:
            case Action.BEGIN:
                self._incarnation().begin()
            case Action.SEND_RECORDS:
                self._write_records(self._incarnation().send)
            case Action.APPEND_RECORDS:
                # A commit whose answer was lost has used up its own time.
                self._budget = self._within(self._committer.transaction_timeout_s)
                self._write_records(self._committer.appender.append)
            case Action.SEND_HEAD:
                head = OutputRecord(head_partition(DRIVER_SLOT), HEAD_KEY, self.entry.to_json())
                self._put(self._incarnation().send, ledger_topic(self._committer.pipeline), [head])
            case Action.SEND_OFFSETS if self._payload.offsets:
                group = consumer_group(self._committer.pipeline)
                self._incarnation().send_offsets(group, self._payload.offsets, self._budget)
            case Action.RELEASE_LANE:
                self._committer.pool.release(self._held())

    def _write_records(self, write: _Write) -> None:
        topic, records = self._payload.topic, self._payload.records
        middle = len(records) // 2
        self._put(write, topic, records[:middle])
        reach(CrashPoint.MID_PRODUCE)
        self._put(write, topic, records[middle:])
        for other, letters in self._payload.letters.items():
            self._put(write, other, letters)

    def _put(self, write: _Write, topic: str, records: Sequence[OutputRecord]) -> None:
        count = write(topic, records, self._budget)
        require(count == len(records), "every record is taken", found=f"{count} of {len(records)}")

    def _acquire_lane(self) -> Event:
        self._budget = self._within(self._committer.transaction_timeout_s)
        try:
            self._lane = self._committer.pool.acquire(self._budget)
        except FencedError:
            return Event.LANE_FENCED
        return Event.LANE_GRANTED

    def _commit(self) -> Event:
        began_s = self._committer.clock.monotonic_s()
        event = self._try(lambda: self._incarnation().commit(self._budget))
        if event in _OUTCOMES:
            self._observe(_OUTCOMES[event], began_s)
        reach(CrashPoint.AFTER_COMMIT if event is Event.DONE else CrashPoint.COMMIT_UNKNOWN)
        return event

    def _abort(self) -> Event:
        began_s = self._committer.clock.monotonic_s()
        self._incarnation().abort(self._budget)
        self._observe("aborted", began_s)
        self._committer.pool.release(self._held())
        return Event.DONE

    def _resettle(self) -> Event:
        try:
            self._resolving(lambda within: self._committer.pool.resettle(self._held(), within))
        except FencedError:
            return Event.LANE_FENCED
        return Event.LANE_READY

    def _read_owner(self) -> Event:
        owner = self._resolving(self._committer.ledger.read_owner)
        mine = is_mine(owner, self._committer.run_id)
        return Event.OWNER_IS_MINE if mine else Event.OWNER_IS_NOT_MINE

    def _observe(self, outcome: str, began_s: float) -> None:
        took_s = self._committer.clock.monotonic_s() - began_s
        self._committer.observer.transaction(outcome, took_s)

    def _try(self, write: Callable[[], None]) -> Event:
        try:
            write()
        except tuple(_EVENT_OF) as error:
            self.refusal = error
            return next(event for kind, event in _EVENT_OF.items() if isinstance(error, kind))
        return Event.DONE

    def _resolving(self, read: Callable[[Deadline], _T]) -> _T:
        """Read owner or head after a lost answer. Has its own time limit."""
        try:
            return read(self._within(self._committer.resolve_timeout_s))
        except (DeadlineError, RetriableError) as error:
            raise OutcomeUnknownError(
                "cannot find out what became of a transaction",
                subject=f"batch {self.entry.batch.batch_id}",
                found=str(error),
                then="stopping; the next start decides it from the ledger",
            ) from error

    def _held(self) -> Lane:
        require(self._lane is not None, "a transaction has a lane")
        assert self._lane is not None  # noqa: S101  for the type checker only
        return self._lane

    def _incarnation(self) -> Incarnation:
        return self._held().require_incarnation()

    def _within(self, seconds: float) -> Deadline:
        return self._committer.clock.within(seconds)

"""Executes the actions of `protocol.commit` on real lanes and a real ledger. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from onceflow.clock import Clock, Deadline
from onceflow.contracts.observer import Observer
from onceflow.contracts.sink import Appender, Ledger, OutputRecord
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
from onceflow.runtime.lanes import Lane, LanePool

_T = TypeVar("_T")

MAX_STEPS = 200
"""Actions for one proposal: MAX_ATTEMPTS transactions of 9 actions, with room; more is a bug."""

_OUTCOMES: Mapping[Event, str] = {Event.DONE: "committed", Event.UNKNOWN: "unknown"}
"""Ends of a commit, for the observer; after others the transaction is aborted."""


@dataclass(frozen=True)
class Payload:
    """What is written beside `head`.

    Args:
        topic: output topic.
        records: in the order in which they are numbered.
        beside: topic -> records for it that are not numbered: dead letters.
        offsets: source position after the batch, for the pipeline's consumer group.
    """

    topic: str = ""
    records: Sequence[OutputRecord] = ()
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    beside: Mapping[str, Sequence[OutputRecord]] = field(default_factory=dict)


@dataclass(frozen=True)
class CommitTimeouts:
    """Budgets in seconds.

    Args:
        transaction_s: to acquire a lane, send everything and commit, per attempt.
        resolve_s: to find out what became of a commit whose answer was lost.
    """

    transaction_s: float
    resolve_s: float


@dataclass(frozen=True)
class CommitTools:
    """What commits are made with.

    Args:
        pipeline: name of the pipeline.
        run_id: of this take-over.
        pool: the lanes.
        appender: for the modes whose records are in no transaction.
        ledger: used by the thread that commits alone.
        clock: measures the budgets.
        timeouts: the budgets.
        observer: told how transactions end.
    """

    pipeline: str
    run_id: str
    pool: LanePool
    appender: Appender
    ledger: Ledger
    clock: Clock
    timeouts: CommitTimeouts
    observer: Observer = field(default_factory=Observer)


class Committer:
    """Leads one proposal at a time from its judgement to its end."""

    def __init__(self, tools: CommitTools) -> None:
        self._tools = tools

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
            FencedError: a newer instance owns the pipeline; nothing of ours can still be committed.
            CorruptionError: checkpoint and ledger contradict each other; nothing was written.
            RecordError: a record can never be written; nothing was committed.
            OutcomeUnknownError: sent, not answered, and the ledger could not be read in time.
            AbortableError, DeadlineError: every attempt was aborted; nothing was committed.
            RecordError, AbortableError, DeadlineError of a batch of at_most_once: it may also be
                committed, with its records refused; then the message says so.
        """
        attempt = _Attempt(self._tools, proposal.entry, payload)
        state, actions = start(proposal, head)
        for _ in range(MAX_STEPS):
            if actions[:1] == (Action.RELEASE_LANE,):
                self._tools.pool.release(attempt.require_lane())
                actions = actions[1:]
            if not actions:
                break
            state, actions = step(state, attempt.execute(actions[0]))
        require(state.phase.is_final, "a proposal ends", found=state.phase.name)
        return self._conclude(state, attempt)

    def _conclude(self, state: CommitState, attempt: _Attempt) -> Phase:
        batch = attempt.entry.batch
        subject = f"batch {batch.batch_id} of query {batch.query_id}"
        if state.phase is Phase.STOPPED:
            raise FencedError.by_newer_instance(self._tools.pipeline, self._tools.run_id)
        if state.phase is Phase.HALTED:
            raise CorruptionError(
                "checkpoint and ledger contradict each other",
                subject=subject,
                expected=state.judgement.expected,
                found=state.judgement.found,
                then="halting; nothing was written",
            )
        if state.phase in {Phase.FAILED, Phase.LOST}:
            require(attempt.refusal is not None, "a failed proposal was refused")
            refusal = attempt.refusal or AbortableError("refused")
            if isinstance(refusal, DeadlineError):
                budget_s = self._tools.timeouts.transaction_s
                refusal.then = (
                    f"{subject} took longer than transaction_timeout ({budget_s:g} s): if the"
                    " brokers are well, start again with a longer one, up to the brokers'"
                    " transaction.max.timeout.ms"
                )
            if state.phase is Phase.LOST:
                refusal.then = f"{subject} is committed and not written again: at_most_once"
            raise refusal
        return state.phase


class _Attempt:
    """The moving parts of one call of `commit`: its lane, its budget and the last refusal."""

    def __init__(self, tools: CommitTools, entry: HeadEntry, payload: Payload) -> None:
        self.entry = entry
        self.refusal: OnceflowError | None = None
        self._tools = tools
        self._payload = payload
        self._lane: Lane | None = None
        self._budget = self._deadline(tools.timeouts.transaction_s)
        self._actions: Mapping[Action, Callable[[], Event | HeadRead]] = {
            Action.ACQUIRE_LANE: self._acquire_lane,
            Action.BEGIN: self._begin,
            Action.SEND_RECORDS: lambda: self._write_records(self._send),
            Action.APPEND_RECORDS: self._append_records,
            Action.SEND_HEAD: self._send_head,
            Action.SEND_OFFSETS: self._send_offsets,
            Action.COMMIT: self._commit,
            Action.ABORT: self._abort,
            Action.READ_OWNER: self._read_owner,
            Action.RESETTLE_LANE: self._resettle,
            Action.READ_HEAD: self._read_head,
        }

    def execute(self, action: Action) -> Event | HeadRead:
        """Do it; report what it came to."""
        return self._actions[action]()

    def require_lane(self) -> Lane:
        """The lane that this attempt holds."""
        require(self._lane is not None, "a transaction has a lane")
        assert self._lane is not None  # noqa: S101  for the type checker only
        return self._lane

    def _acquire_lane(self) -> Event:
        self._budget = self._deadline(self._tools.timeouts.transaction_s)
        try:
            self._lane = self._tools.pool.acquire(self._budget)
        except FencedError:
            return Event.LANE_FENCED
        return Event.LANE_GRANTED

    def _begin(self) -> Event:
        reach(CrashPoint.BEFORE_BEGIN)
        return self._try(lambda: self.require_lane().require_incarnation().begin())

    def _append_records(self) -> Event:
        # A commit whose answer was lost has used up its own budget.
        self._budget = self._deadline(self._tools.timeouts.transaction_s)
        return self._write_records(self._append)

    def _write_records(self, write: Callable[[str, Sequence[OutputRecord]], None]) -> Event:
        records = self._payload.records
        middle = len(records) // 2
        return self._try(
            lambda: write(self._payload.topic, records[:middle]),
            lambda: reach(CrashPoint.MID_PRODUCE),
            lambda: write(self._payload.topic, records[middle:]),
            *(partial(write, *each) for each in self._payload.beside.items()),
        )

    def _send_head(self) -> Event:
        reach(CrashPoint.BEFORE_HEAD)
        topic = ledger_topic(self._tools.pipeline)
        head = OutputRecord(head_partition(DRIVER_SLOT), HEAD_KEY, self.entry.to_json())
        return self._try(lambda: self._send(topic, [head]))

    def _send(self, topic: str, records: Sequence[OutputRecord]) -> None:
        sent = self.require_lane().require_incarnation().send(topic, records, self._budget)
        _require_all(sent, records)

    def _append(self, topic: str, records: Sequence[OutputRecord]) -> None:
        _require_all(self._tools.appender.append(topic, records, self._budget), records)

    def _send_offsets(self) -> Event:
        if not self._payload.offsets:
            return Event.DONE
        group = consumer_group(self._tools.pipeline)
        return self._try(
            lambda: (
                self.require_lane()
                .require_incarnation()
                .send_offsets(group, self._payload.offsets, self._budget)
            )
        )

    def _commit(self) -> Event:
        reach(CrashPoint.BEFORE_COMMIT)
        began_s = self._tools.clock.monotonic_s()
        event = self._try(lambda: self.require_lane().require_incarnation().commit(self._budget))
        if event in _OUTCOMES:
            took_s = self._tools.clock.monotonic_s() - began_s
            self._tools.observer.transaction(_OUTCOMES[event], took_s)
        reach(CrashPoint.AFTER_COMMIT if event is Event.DONE else CrashPoint.COMMIT_UNKNOWN)
        return event

    def _abort(self) -> Event:
        lane = self.require_lane()
        began_s = self._tools.clock.monotonic_s()
        lane.require_incarnation().abort(self._budget)
        self._tools.observer.transaction("aborted", self._tools.clock.monotonic_s() - began_s)
        self._tools.pool.release(lane)
        return Event.DONE

    def _read_owner(self) -> Event:
        owner = self._resolving(self._tools.ledger.read_owner)
        mine = is_mine(owner, self._tools.run_id)
        return Event.OWNER_IS_MINE if mine else Event.OWNER_IS_NOT_MINE

    def _resettle(self) -> Event:
        lane = self.require_lane()
        try:
            self._resolving(lambda d: self._tools.pool.resettle(lane, d))
        except FencedError:
            return Event.LANE_FENCED
        return Event.LANE_READY

    def _read_head(self) -> HeadRead:
        return HeadRead(self._resolving(lambda d: self._tools.ledger.read_head(DRIVER_SLOT, d)))

    def _try(self, *calls: Callable[[], None]) -> Event:
        try:
            for call in calls:
                call()
        except FencedError as error:
            self.refusal = error
            return Event.FENCED
        except OutcomeUnknownError as error:
            self.refusal = error
            return Event.UNKNOWN
        except RecordError as error:
            self.refusal = error
            return Event.REFUSED_FOR_GOOD
        except (AbortableError, DeadlineError, RetriableError) as error:
            self.refusal = error
            return Event.REFUSED
        return Event.DONE

    def _resolving(self, read: Callable[[Deadline], _T]) -> _T:
        """Read the truth behind a lost answer, within its own budget."""
        try:
            return read(self._deadline(self._tools.timeouts.resolve_s))
        except (DeadlineError, RetriableError) as error:
            raise OutcomeUnknownError(
                "cannot find out what became of a transaction",
                subject=f"batch {self.entry.batch.batch_id}",
                found=str(error),
                then="stopping; the next start decides it from the ledger",
            ) from error

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline.after(self._tools.clock, seconds)


def _require_all(count: int, records: Sequence[OutputRecord]) -> None:
    require(count == len(records), "every record is taken", found=f"{count} of {len(records)}")

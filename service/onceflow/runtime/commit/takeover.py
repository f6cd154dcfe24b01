"""Executes the actions of `protocol.takeover`: claims, fences, reads `head`, compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from onceflow.clock import Clock
from onceflow.contracts.sink import Incarnation, Ledger, OutputRecord
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import (
    AbortableError,
    DeadlineError,
    FencedError,
    InvariantError,
    OnceflowError,
    OutcomeUnknownError,
    RetriableError,
    require,
)
from onceflow.protocol.compare import Comparison, Decision
from onceflow.protocol.identity import (
    DRIVER_SLOT,
    OWNER_PARTITION,
    LaneId,
    lane_transactional_id,
    ledger_topic,
    owner_transactional_id,
)
from onceflow.protocol.ledger import OWNER_KEY, HeadEntry, OwnerEntry
from onceflow.protocol.takeover import (
    Claimant,
    LaneFenced,
    OwnerRead,
    TakeoverAction,
    TakeoverEvent,
    TakeoverPhase,
    TakeoverState,
    start,
    step,
)

MAX_STEPS = 50
"""Actions of one attempt: the machine has no loop and ten phases; more is a bug."""
MAX_FENCING_THREADS = 8
"""Lanes fenced at once; each waits up to half a second on librdkafka's timers."""


@dataclass(frozen=True)
class Takeover:
    """A take-over that succeeded: our lanes are initialised and confirmed, and nothing halts."""

    owner: OwnerEntry
    head: HeadEntry | None
    lanes: Mapping[LaneId, Incarnation]
    comparison: Comparison


@dataclass(eq=False)
class TakeoverAttempt:
    """One attempt to become the owner of a pipeline.

    Args:
        claimant: with a new run_id for each attempt.
        compare: reads the checkpoint and compares it with `head`; called last.
    """

    pipeline: str
    claimant: Claimant
    open_incarnation: Callable[[str], Incarnation]
    ledger: Ledger
    compare: Callable[[HeadEntry | None], Comparison]
    clock: Clock
    timeout_s: float

    def __post_init__(self) -> None:
        self._deadline = self.clock.within(self.timeout_s)
        self._failure: OnceflowError | None = None
        self._owners: list[OwnerEntry | None] = []
        self._lanes: dict[LaneId, Incarnation] = {}
        self._owner_incarnation: Incarnation | None = None
        self._head: HeadEntry | None = None
        self._comparison: Comparison | None = None

    def run(self) -> Takeover:
        """Claim, fence every lane, read `head`, compare.

        Returns:
            Only if `owner` was ours after every lane was fenced.

        Raises:
            FencedError: another instance claimed at the same time, or since.
            AbortableError: the claim was not committed, although no other instance claimed.
            DeadlineError: no answer in time; the claim may stand, lanes may be fenced, nothing
                else was written.
            LineageError, CorruptionError: checkpoint and ledger do not fit; only `owner` was
                written.
        """
        state: TakeoverState | None = None
        try:
            state = self._drive()
            return self._conclude(state)
        finally:
            if self._owner_incarnation is not None:
                self._owner_incarnation.discard()
            if state is None or state.phase is not TakeoverPhase.OWNED:
                for incarnation in self._lanes.values():
                    incarnation.discard()

    def _drive(self) -> TakeoverState:
        state, actions = start(self.claimant)
        for _ in range(MAX_STEPS):
            if not actions:
                break
            if actions[0] is TakeoverAction.FENCE_LANES:
                state, actions = self._fence(state)
            else:
                state, actions = step(state, self._execute(actions[0], state))
        require(state.phase.is_final, "a take-over ends", found=state.phase.name)
        return state

    def _execute(self, action: TakeoverAction, state: TakeoverState) -> TakeoverEvent | OwnerRead:
        calls: Mapping[TakeoverAction, Callable[[], TakeoverEvent | OwnerRead]] = {
            TakeoverAction.INITIALISE_OWNER: self._initialise_owner,
            TakeoverAction.READ_OWNER: self._read_owner,
            TakeoverAction.WRITE_CLAIM: lambda: self._write_claim(state.claim),
            TakeoverAction.READ_HEAD: self._read_head,
            TakeoverAction.COMPARE: self._compare,
        }
        try:
            return calls[action]()
        except FencedError as error:
            self._failure = error
            return TakeoverEvent.FENCED
        except (DeadlineError, RetriableError) as error:
            self._failure = error
            return TakeoverEvent.TIMED_OUT

    def _read_owner(self) -> OwnerRead:
        self._owners.append(self.ledger.read_owner(self._deadline))
        return OwnerRead(self._owners[-1])

    def _initialise_owner(self) -> TakeoverEvent:
        reach(CrashPoint.BEFORE_CLAIM)
        name = owner_transactional_id(self.pipeline)
        self._owner_incarnation = self.open_incarnation(name)
        self._owner_incarnation.initialise(self._deadline)
        return TakeoverEvent.DONE

    def _write_claim(self, claim: OwnerEntry | None) -> TakeoverEvent:
        if claim is None or self._owner_incarnation is None:
            raise InvariantError("a claim is written after its initialisation")
        record = OutputRecord(OWNER_PARTITION, OWNER_KEY, claim.to_json())
        topic = ledger_topic(self.pipeline)
        try:
            self._owner_incarnation.begin()
            self._owner_incarnation.send(topic, [record], self._deadline)
            self._owner_incarnation.commit(self._deadline)
        except (OutcomeUnknownError, AbortableError) as error:
            self._failure = error
            return TakeoverEvent.UNKNOWN
        return TakeoverEvent.DONE

    def _fence(self, state: TakeoverState) -> tuple[TakeoverState, tuple[TakeoverAction, ...]]:
        reach(CrashPoint.AFTER_CLAIM)
        actions: tuple[TakeoverAction, ...] = ()
        lanes = sorted(state.to_fence)
        with ThreadPoolExecutor(MAX_FENCING_THREADS) as threads:
            fences: dict[Future[Incarnation], LaneId] = {
                threads.submit(self._initialise_lane, lane): lane for lane in lanes
            }
            for fence in as_completed(fences):
                try:
                    self._lanes[fences[fence]] = fence.result()
                except OnceflowError as error:
                    # Without this lane the fence has a hole; the others' incarnations go too.
                    self._failure = error
                    continue
                reach(CrashPoint.MID_FENCE)
                state, actions = step(state, LaneFenced(fences[fence]))
        if self._failure is not None and state.to_fence:
            return step(state, TakeoverEvent.TIMED_OUT)
        reach(CrashPoint.AFTER_FENCE)
        return state, actions

    def _initialise_lane(self, lane: LaneId) -> Incarnation:
        incarnation = self.open_incarnation(lane_transactional_id(self.pipeline, lane))
        try:
            incarnation.initialise(self._deadline)
        except OnceflowError:
            incarnation.discard()
            raise
        return incarnation

    def _read_head(self) -> TakeoverEvent:
        self._head = self.ledger.read_head(DRIVER_SLOT, self._deadline)
        reach(CrashPoint.AFTER_HEAD_READ)
        return TakeoverEvent.DONE

    def _compare(self) -> TakeoverEvent:
        self._comparison = self.compare(self._head)
        return (
            TakeoverEvent.HALT
            if self._comparison.decision is Decision.HALT
            else TakeoverEvent.GO_ON
        )

    def _conclude(self, state: TakeoverState) -> Takeover:
        pipeline = self.pipeline
        if (
            state.phase is TakeoverPhase.OWNED
            and state.claim is not None
            and self._comparison is not None
        ):
            return Takeover(state.claim, self._head, self._own_lanes(), self._comparison)
        if state.phase is TakeoverPhase.HALTED and self._comparison and self._comparison.error:
            raise self._comparison.error
        if state.phase is TakeoverPhase.STOPPED and self._is_still_as_before():
            raise AbortableError(
                "the claim was not committed, and no other instance has claimed",
                subject=pipeline,
                found=str(self._failure),
                then="nothing was written; start again",
            )
        if state.phase is TakeoverPhase.STOPPED:
            raise FencedError(
                "another instance claimed this pipeline",
                subject=pipeline,
                expected=f"owner with run_id {self.claimant.run_id}",
                found=str(self._failure or "another run_id"),
                then="stopping; nothing but the claim was written",
            )
        raise DeadlineError(
            "the pipeline could not be taken over in time",
            subject=pipeline,
            expected=f"done within {self.timeout_s:g} s",
            found=str(self._failure or "no answer"),
            then="nothing but the claim was written; start again",
        )

    def _is_still_as_before(self) -> bool:
        """Whether the claim failed without another's: a right is missing, or a broker went away."""
        is_unchanged = len(self._owners) > 1 and self._owners[0] == self._owners[-1]
        return is_unchanged and not isinstance(self._failure, FencedError)

    def _own_lanes(self) -> Mapping[LaneId, Incarnation]:
        """Keep what this driver uses; lanes of a larger earlier layout were fenced only."""
        own = set(self.claimant.layout.lane_ids())
        for lane in set(self._lanes) - own:
            self._lanes[lane].discard()
        return {lane: self._lanes[lane] for lane in own}

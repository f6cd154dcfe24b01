"""The lanes of the driver's writer slot: leads each through `protocol.lane`, in the background.

A fresh incarnation costs 55 to 500 ms, so a used lane is renewed by a thread while batches are
written on the others. No Spark here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from onceflow.clock import Clock, Deadline
from onceflow.contracts.sink import Incarnation, Ledger
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import DeadlineError, FencedError, OnceflowError, require
from onceflow.protocol.identity import LaneId, Layout, lane_transactional_id
from onceflow.protocol.lane import LaneAction, LaneEvent, LanePhase, step
from onceflow.protocol.takeover import is_mine

MAX_RENEWALS = 20
"""Background attempts for one lane in a row; then only a batch that waits for it reports why."""
RENEWAL_PAUSE_S = 1.0
"""Between attempts, so that a broker that refuses at once is not asked in a tight loop."""


@dataclass
class Lane:
    """One lane and its current incarnation, if it has one."""

    lane_id: LaneId
    phase: LanePhase = LanePhase.STALE
    incarnation: Incarnation | None = None

    def require_incarnation(self) -> Incarnation:
        """The incarnation of a lane that is BUSY."""
        require(self.incarnation is not None, "a busy lane has an incarnation")
        assert self.incarnation is not None  # noqa: S101  for the type checker only
        return self.incarnation


@dataclass(eq=False)
class LanePool:
    """Hands out lanes that are READY and renews those that were used.

    Args:
        ledger: to read `owner`; used by one thread at a time.
        settle_timeout_s: to initialise a lane and read `owner` once.
    """

    pipeline: str
    layout: Layout
    run_id: str
    open_incarnation: Callable[[str], Incarnation]
    ledger: Ledger
    clock: Clock
    settle_timeout_s: float

    def __post_init__(self) -> None:
        self.lanes = {lane_id: Lane(lane_id) for lane_id in self.layout.lane_ids()}
        self._changed = threading.Condition()
        self._ledger_lock = threading.Lock()
        self._is_closed = threading.Event()
        self._last_error: OnceflowError | None = None
        self._renewers = ThreadPoolExecutor(len(self.lanes), thread_name_prefix="lane")

    def start(self, confirmed: Mapping[LaneId, Incarnation]) -> None:
        """Take the incarnations of a fence after which `owner` was read and found to be ours."""
        for lane_id, lane in self.lanes.items():
            if lane_id in confirmed:
                lane.incarnation = confirmed[lane_id]
                lane.phase = LanePhase.READY
            else:
                self._renewers.submit(self._renew, lane)

    def acquire(self, deadline: Deadline) -> Lane:
        """Take a READY lane; it is BUSY until `release` or `resettle`.

        Raises:
            FencedError: the renewal of a lane found another owner.
            DeadlineError: no lane became ready; tells the last error of a renewal.
        """
        with self._changed:
            self._changed.wait_for(self._is_decided, timeout=deadline.remaining_s())
            self._check_not_fenced()
            ready = [n for n in self.lanes.values() if n.phase is LanePhase.READY]
            if not ready:
                raise DeadlineError(
                    "no lane became ready",
                    subject=self.pipeline,
                    expected=f"one of {len(self.lanes)} within {deadline.budget_s:g} s",
                    found=str(self._last_error or "initialisation still under way"),
                )
            self._move(ready[0], LaneEvent.TAKEN)
            return ready[0]

    def release(self, lane: Lane) -> None:
        """Give back a lane whose transaction has ended, whichever way."""
        with self._changed:
            self._move(lane, LaneEvent.RELEASED)
        if not self._is_closed.is_set():
            self._renewers.submit(self._renew, lane)

    def resettle(self, lane: Lane, deadline: Deadline) -> None:
        """Lead a BUSY lane to READY now, which decides the transaction it carried.

        Raises:
            FencedError: `owner` is not ours.
            DeadlineError, RetriableError: not done in time; the transaction may be undecided.
        """
        with self._changed:
            self._move(lane, LaneEvent.RELEASED)
        self._settle(lane, deadline)
        with self._changed:
            self._check_not_fenced()

    def close(self) -> None:
        """Discard every incarnation. No transaction may be open."""
        self._is_closed.set()
        self._renewers.shutdown(wait=True, cancel_futures=True)
        for lane in self.lanes.values():
            if lane.incarnation is not None:
                lane.incarnation.discard()

    def _is_decided(self) -> bool:
        phases = {lane.phase for lane in self.lanes.values()}
        return bool(phases & {LanePhase.READY, LanePhase.FENCED})

    def _check_not_fenced(self) -> None:
        if any(lane.phase is LanePhase.FENCED for lane in self.lanes.values()):
            raise FencedError.by_newer_instance(self.pipeline, self.run_id)

    def _renew(self, lane: Lane) -> None:
        for _ in range(MAX_RENEWALS):
            if self._is_closed.is_set():
                return
            try:
                self._settle(lane, self.clock.within(self.settle_timeout_s))
            except OnceflowError as error:
                self._last_error = error
                self._is_closed.wait(RENEWAL_PAUSE_S)
            else:
                return

    def _settle(self, lane: Lane, deadline: Deadline) -> None:
        """Drive the lane's machine from STALE until it is READY or FENCED."""
        with self._changed:
            actions = self._move(lane, LaneEvent.RENEWED)
        require(
            actions == (LaneAction.INITIALISE,),
            "a renewal begins with an initialisation",
        )
        self._initialise(lane, deadline)
        reach(CrashPoint.LANE_REINIT)
        self._confirm_owner(lane, deadline)

    def _initialise(self, lane: Lane, deadline: Deadline) -> None:
        name = lane_transactional_id(self.pipeline, lane.lane_id)
        incarnation = self.open_incarnation(name)
        try:
            incarnation.initialise(deadline)
        except OnceflowError:
            incarnation.discard()
            with self._changed:
                self._move(lane, LaneEvent.INITIALISE_FAILED)
            raise
        with self._changed:
            lane.incarnation = incarnation
            self._move(lane, LaneEvent.INITIALISED)

    def _confirm_owner(self, lane: Lane, deadline: Deadline) -> None:
        try:
            with self._ledger_lock:
                owner = self.ledger.read_owner(deadline)
        except OnceflowError:
            with self._changed:
                self._move(lane, LaneEvent.OWNER_UNREADABLE)
            raise
        mine = is_mine(owner, self.run_id)
        with self._changed:
            self._move(lane, LaneEvent.OWNER_IS_MINE if mine else LaneEvent.OWNER_IS_NOT_MINE)

    def _move(self, lane: Lane, event: LaneEvent) -> tuple[LaneAction, ...]:
        lane.phase, actions = step(lane.phase, event)
        if LaneAction.DISCARD in actions and lane.incarnation is not None:
            lane.incarnation.discard()
            lane.incarnation = None
        self._changed.notify_all()
        return actions

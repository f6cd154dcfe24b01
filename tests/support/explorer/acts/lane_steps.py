"""Executes the actions of the lane machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onceflow.protocol.lane import LaneEvent, LanePhase
from onceflow.protocol.takeover import is_mine
from tests.support.explorer.kafka import Handle, Lane, Owner
from tests.support.explorer.run import Executor, Outcome, Outcomes
from tests.support.explorer.scope import Fault


class Moved(NamedTuple):
    """One outcome of a step of a lane."""

    label: str
    lane: Lane
    owner: Owner


class LaneSteps(Executor):
    """A lane's way from STALE to READY, in the background or for a proposal."""

    def renew(self, lane: Lane, owner: Owner, run: int, number: int) -> Outcomes:
        """The background's work on a used lane."""
        if lane.handles[run].is_held:
            return
        for label, moved, owner_after in self.settle(run, lane, owner, number):
            yield Outcome(f"{label}, in the background", (moved, owner_after))

    def settle(self, run: int, lane: Lane, owner: Owner, number: int) -> Iterator[Moved]:
        """Initialise, or read `owner` after an initialisation, whichever is next."""
        phase = lane.handles[run].phase
        if phase is LanePhase.INITIALISING:
            yield from self._initialise(run, lane, owner, number)
        elif phase is LanePhase.UNCONFIRMED:
            yield from self._confirm(run, lane, owner, number)

    def released(self, run: int, lane: Lane, *, is_held: bool) -> Lane:
        """The transaction has ended, whichever way; the lane is to be renewed."""
        lane = lane.handled(run, lane.handles[run]._replace(is_held=is_held))
        return self.moved(run, lane, LaneEvent.RELEASED)

    def moved(self, run: int, lane: Lane, event: LaneEvent) -> Lane:
        """Step a lane's machine; a lane that becomes stale is renewed at once."""
        phase, is_held = lane.handles[run]
        assert phase is not None
        phase, is_discarded = self.product.move_lane(phase, event, is_held=is_held)
        if is_discarded:
            lane = lane._replace(id=lane.id.dropped_by(run))
        if phase is LanePhase.STALE:
            phase, _ = self.product.move_lane(phase, LaneEvent.RENEWED, is_held=is_held)
        return lane.handled(run, Handle(phase, is_held))

    def _initialise(self, run: int, lane: Lane, owner: Owner, number: int) -> Iterator[Moved]:
        # A proposal whose resettling is not answered gives up, which is a crash in disguise.
        can_fail = Fault.LOST_ANSWER in self.scope.faults and not lane.handles[run].is_held
        label = f"R{run}: init_transactions(lane {number})"
        if can_fail and Fault.LATE_INIT in self.scope.faults:
            delayed = lane._replace(id=lane.id._replace(has_late_init=True))
            yield Moved(f"{label} is delayed", self.moved(run, delayed, _FAILED), owner)
        result = lane.id.initialised_by(run)
        if result is None:
            return
        lane = lane._replace(id=result.id)
        if not result.is_done:
            yield Moved(f"{label} aborts an open transaction", lane, owner)
            return
        ready = self.moved(run, lane, LaneEvent.INITIALISED)
        if ready.handles[run].phase is LanePhase.UNCONFIRMED:
            yield Moved(label, ready, owner.read_begun(run, number))
        else:
            yield Moved(label, ready, owner)  # only where a rule was removed
        if can_fail:
            yield Moved(f"{label} is not answered", self.moved(run, lane, _FAILED), owner)

    def _confirm(self, run: int, lane: Lane, owner: Owner, number: int) -> Iterator[Moved]:
        label = f"R{run} reads owner behind init of lane {number}"
        after = owner.read_ended(run, number)
        if self.can_read_owner(run, number, owner):
            mine = is_mine(owner.entry, f"R{run}")
            event = LaneEvent.OWNER_IS_MINE if mine else LaneEvent.OWNER_IS_NOT_MINE
            yield Moved(f"{label}: {owner}", self.moved(run, lane, event), after)
        if Fault.LOST_ANSWER in self.scope.faults and not lane.handles[run].is_held:
            again = self.moved(run, lane, LaneEvent.OWNER_UNREADABLE)
            yield Moved(f"{label}: no answer", again, after)


_FAILED = LaneEvent.INITIALISE_FAILED

"""Executes the actions of the commit machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onceflow.protocol.commit import Action, Event, Phase
from onceflow.protocol.lane import LaneEvent, LanePhase
from onceflow.protocol.takeover import is_mine
from tests.support.explorer.acts.lane_steps import LaneSteps
from tests.support.explorer.checks import Append, Truth, on_append
from tests.support.explorer.kafka import (
    FOREGROUND,
    MAX_END_TXN,
    Handle,
    Lane,
    Status,
    Task,
    TransactionalId,
    Write,
)
from tests.support.explorer.product import Position
from tests.support.explorer.run import Outcome, Outcomes, Run, Scene, Stage
from tests.support.explorer.scope import Fault
from tests.support.explorer.spark import LogWrites

_SENDS = {
    Action.SEND_RECORDS: "records",
    Action.SEND_HEAD: "head",
    Action.SEND_OFFSETS: "offsets",
}


class Sending(NamedTuple):
    """A transaction that is being sent."""

    label: str
    at: Position
    scene: Scene
    lane: Lane

    @property
    def is_current(self) -> bool:
        """Whether the broker accepts what is sent."""
        return self.lane.id.holder == self.scene.run.number


class CommitSteps(LaneSteps):
    """From a lane to the end of a proposal."""

    def acquire_and_send(self, scene: Scene, lane: Lane, truth: Truth, number: int) -> Outcomes:
        """Take a lane, begin, send the records."""
        run = scene.run
        phase = lane.handles[run.number].phase
        if phase is LanePhase.FENCED:
            at = self.product.commit(run.position, Event.LANE_FENCED)
            yield Outcome(f"{run}: lane {number} is fenced", (*self.go(at, scene), lane, truth))
        if phase is not LanePhase.READY:
            return
        taken, _ = self.product.move_lane(phase, LaneEvent.TAKEN, is_held=False)
        lane = lane.handled(run.number, Handle(taken, is_held=True))
        at = self.product.commit(run.position, Event.LANE_GRANTED)
        taken_lane = Sending(f"{run} takes lane {number} for {at.head}", at, scene, lane)
        for begun in self._begin(taken_lane):
            if begun.at.action is Action.SEND_RECORDS and self._has_tasks(run):
                started = self._task_started(begun, truth) if begun.is_current else begun
                label = f"{started.label}, starts a task"
                yield Outcome(label, (*self.go(begun.at, begun.scene), started.lane, truth))
            elif begun.at.action is Action.SEND_RECORDS:
                yield from self._send_records(begun, truth, number)
            else:
                yield from self._rest(begun, truth, number)

    def await_task(self, scene: Scene, lane: Lane, truth: Truth, number: int) -> Outcomes:
        """Hear what became of the task that writes the record."""
        run = scene.run
        if not lane.handles[run.number].is_held:
            return
        waiting = Sending(f"{run} on lane {number}", run.position, scene, lane)
        if not waiting.is_current:
            yield from self._rest(
                self._came(waiting, ": its task is fenced", Event.FENCED), truth, number
            )
            return
        for index, task in enumerate(lane.id.tasks):
            if task.is_given_up:
                continue
            others = (*lane.id.tasks[:index], *lane.id.tasks[index + 1 :])
            if task.has_written:
                yield self._reported(waiting, others, truth)
            # One that has written leaves nothing but its record.
            left = (*others, task._replace(is_given_up=True)) if not task.has_written else others
            failed = waiting._replace(lane=lane._replace(id=lane.id._replace(tasks=left)))
            for fault, event in _REFUSALS.items():
                if fault not in self.scope.faults:
                    continue
                if not self.product.rules.repeats_tasks:
                    came = self._came(failed, ": its task fails", event)
                    yield from self._rest(came, truth, number)
                elif left == others:
                    again = self._task_started(failed, truth)
                    label = f"{again.label}: its task fails, and is tried again"
                    yield Outcome(label, (*scene, again.lane, truth))

    def _has_tasks(self, run: Run) -> bool:
        return self.scope.has_writers and run.stage is Stage.COMMITTING

    def _has_sent(self, id_: TransactionalId) -> bool:
        """Whether the driver's own client has written in the open transaction, if there is one.

        If not, it ends nothing and answers that all is well, whatever tasks have written in it.
        """
        if id_.status is not Status.ONGOING:
            return True
        by_tasks = {"records"} if self.scope.has_writers else set()
        return bool(id_.content.parts - by_tasks)

    def _task_started(self, sending: Sending, truth: Truth) -> Sending:
        run, head, id_ = sending.scene.run, sending.at.head, sending.lane.id
        assert head is not None
        write = Write(run.number, head, frozenset(), (run.start, run.end), is_early=False)
        id_ = id_._replace(tasks=(*id_.tasks, Task(write)))
        return sending._replace(lane=sending.lane._replace(id=id_))

    def _reported(self, waiting: Sending, others: tuple[Task, ...], truth: Truth) -> Outcome:
        _, at, scene, lane = waiting
        assert at.head is not None
        id_ = lane.id._replace(tasks=others)
        if id_.status is Status.ONGOING:  # always, unless a rule was removed
            written = id_.content._replace(
                run=scene.run.number,
                head=at.head,
                rows_from=(scene.run.start, scene.run.end),
                parts=id_.content.parts | {"records"},
                strays=id_.content.strays - 1,
            )
            id_ = id_._replace(content=written)
        came = self._came(waiting, ": its task reports", Event.DONE)
        return Outcome(came.label, (*self.go(came.at, scene), lane._replace(id=id_), truth))

    def append_before(self, scene: Scene, lane: Lane, truth: Truth, number: int) -> Outcomes:
        """Write the record outside the transaction that is begun on a lane."""
        run = scene.run
        is_here = lane.handles[run.number].is_held
        if run.position.phase is not Phase.APPENDING_BEFORE or not is_here:
            return
        for text, at, after, violation in self._appends(run, truth):
            label = f"{run} with lane {number} {text}"
            scene_after, lane_after = self._step_on(at, scene, lane)
            yield Outcome(label, (*scene_after, lane_after, after), violation)

    def append_after(self, scene: Scene, truth: Truth) -> Outcomes:
        """Write the record after the commit; no lane is held any more."""
        run = scene.run
        if run.position.phase is not Phase.APPENDING_AFTER:
            return
        for text, at, after, violation in self._appends(run, truth):
            yield Outcome(f"{run} {text}", (*self.go(at, scene), after), violation)

    def _appends(self, run: Run, truth: Truth) -> Iterator[tuple[str, Position, Truth, str | None]]:
        """Every outcome of an append; what is refused may have been written all the same."""
        at = run.position
        assert at.head is not None
        may_differ = (
            self.scope.log_writes is not LogWrites.EXCLUSIVE
            or self.scope.loses_commits  # its plan is made again
        )
        violation, appended = on_append(
            Append(run.number, at.head),
            truth,
            self.scope.delivery,
            may_differ=may_differ,
        )
        text = f"appends the record of batch {at.head.batch}"
        yield text, self.product.commit(at, Event.DONE), appended, violation
        for fault, event in _REFUSALS.items():
            if fault in self.scope.faults:
                refused = self.product.commit(at, event)
                yield f"{text}, which is refused", refused, truth, None
                yield f"{text}, which is written and refused", refused, appended, violation

    def send_rest(self, scene: Scene, lane: Lane, truth: Truth, number: int) -> Outcomes:
        """Send `head` and the offsets, and hand EndTxn to the network."""
        if lane.handles[scene.run.number].is_held:
            label = f"{scene.run} on lane {number}"
            sending = Sending(label, scene.run.position, scene, lane)
            yield from self._rest(sending, truth, number)

    def _rest(self, sending: Sending, truth: Truth, number: int) -> Outcomes:
        under_way = [sending]
        while under_way:
            sending = under_way.pop()
            if sending.at.action in _SENDS:
                under_way += self._send(sending, truth, number)
                continue
            scene, lane = self._step_on(sending.at, sending.scene, sending.lane)
            ending = ", sends EndTxn(commit)" if sending.at.action is Action.COMMIT else ""
            yield Outcome(sending.label + ending, (*scene, lane, truth))

    def _send_records(self, sending: Sending, truth: Truth, number: int) -> Outcomes:
        for sent in self._send(sending, truth, number):
            if sent.at.action is Action.SEND_HEAD and sent.is_current:
                after = self.go(sent.at, sent.scene)
                yield Outcome(sent.label, (*after, sent.lane, truth))
            else:
                yield from self._rest(sent, truth, number)

    def _begin(self, sending: Sending) -> Iterator[Sending]:
        yield self._came(sending, "", Event.DONE)
        if not sending.is_current:
            yield self._came(sending, ", begin fenced", Event.FENCED)
        elif Fault.REFUSED in self.scope.faults:
            yield self._came(sending, ", begin refused", Event.REFUSED)

    def _send(self, sending: Sending, truth: Truth, number: int) -> Iterator[Sending]:
        """Every outcome of one send."""
        _, at, scene, lane = sending
        assert at.head is not None
        part = _SENDS[at.action]
        if not sending.is_current:
            yield self._came(sending, f", {part} fenced", Event.FENCED)
            if Fault.UNNOTICED_FENCE in self.scope.faults:
                yield self._came(sending, f", {part} sent without effect", Event.DONE)
            return
        if lane.id.is_unmarked:
            return
        if Fault.REFUSED in self.scope.faults:
            yield self._came(sending, f", {part} refused", Event.REFUSED)
        if Fault.REFUSED_FOR_GOOD in self.scope.faults:
            yield self._came(sending, f", {part} refused for good", Event.REFUSED_FOR_GOOD)
        is_open = lane.id.status is Status.ONGOING
        parts = lane.id.content.parts if is_open else frozenset()
        run = scene.run
        write = Write(
            run.number,
            at.head,
            parts | {part},
            (run.start, run.end) if run.stage is Stage.COMMITTING else None,
            is_early=truth.committed < at.head.batch - 1,
            strays=lane.id.content.strays if is_open else 0,
        )
        lane = lane._replace(id=lane.id.opened(write))
        if part == "head":
            scene = scene._replace(heads=scene.heads.appended(number, at.head))
        sent = self._came(sending, f", {part} sent", Event.DONE)
        yield sent._replace(scene=scene, lane=lane)

    def _came(self, sending: Sending, text: str, event: Event) -> Sending:
        at = self.product.commit(sending.at, event)
        return sending._replace(label=sending.label + text, at=at)

    def answer_commit(self, scene: Scene, lane: Lane, number: int) -> Outcomes:
        run = scene.run
        if not lane.handles[run.number].is_held:
            return
        answers = []
        is_current = lane.id.holder == run.number
        if not is_current:
            answers.append((Event.FENCED, "answered: fenced"))
        elif lane.id.is_acknowledged or not self._has_sent(lane.id):
            answers.append((Event.DONE, "acknowledged"))
        if Fault.LOST_ANSWER in self.scope.faults:
            answers.append((Event.UNKNOWN, "not answered"))
        # Refused means that EndTxn was not sent; that it is under way here only allows for more.
        if Fault.REFUSED in self.scope.faults:
            answers.append((Event.REFUSED, "refused"))
        if Fault.REFUSED_FOR_GOOD in self.scope.faults:
            answers.append((Event.REFUSED_FOR_GOOD, "refused for good"))
        for event, text in answers:
            at = self.product.commit(run.position, event)
            label = f"{run}: its commit on lane {number} is {text}"
            after, lane_after = self._step_on(at, scene, lane)
            yield Outcome(label, (*after, lane_after))
        can_repeat = is_current and lane.id.commits < MAX_END_TXN
        if can_repeat and Fault.REPEATED_END_TXN in self.scope.faults:
            label = f"{run}: its client repeats EndTxn(commit) on lane {number}"
            yield Outcome(label, (*scene, lane._replace(id=lane.id.commit_sent())))

    def read_owner(self, scene: Scene) -> Outcomes:
        run, owner, _ = scene
        if not self.can_read_owner(run.number, FOREGROUND, owner):
            return
        scene = scene._replace(owner=owner.read_ended(run.number, FOREGROUND))
        mine = is_mine(owner.entry, str(run))
        event = Event.OWNER_IS_MINE if mine else Event.OWNER_IS_NOT_MINE
        at = self.product.commit(run.position, event)
        label = f"{run} reads owner ({run.position.phase.name}): {owner}"
        yield Outcome(label, self.go(at, scene))

    def resettle(self, scene: Scene, lane: Lane, number: int) -> Outcomes:
        """Lead the lane of the running proposal to READY again."""
        run = scene.run
        handle = lane.handles[run.number]
        if not handle.is_held:
            return
        if handle.phase is LanePhase.BUSY:
            lane = self.released(run.number, lane, is_held=True)
        for label, moved, owner in self.settle(run.number, lane, scene.owner, number):
            after, after_lane = scene._replace(owner=owner), moved
            phase = moved.handles[run.number].phase
            if phase in _SETTLED:
                after_lane = moved.handled(run.number, Handle(phase))
                after = self.go(self.product.commit(run.position, _SETTLED[phase]), after)
            yield Outcome(f"{label}, for the proposal", (*after, after_lane))

    def read_head(self, scene: Scene, truth: Truth) -> Outcomes:
        run, _, heads = scene
        if not self.can_read_head(run.number, heads):
            return
        at = self.product.commit_head_read(run.position, heads.entry)
        scene = scene._replace(run=run._replace(head=heads.entry), heads=heads.without(run.number))
        yield Outcome(f"{run} reads head: {heads.entry}", (*self.go(at, scene), truth))

    def _step_on(self, at: Position, scene: Scene, lane: Lane) -> tuple[Scene, Lane]:
        """As `go`, executing first what needs no answer from anybody."""
        run = scene.run
        if at.action is Action.ABORT:
            is_sent = lane.id.status is Status.ONGOING and self._has_sent(lane.id)
            if lane.id.holder == run.number and is_sent:
                lane = lane._replace(id=lane.id._replace(aborts=1))
            lane = self.released(run.number, lane, is_held=False)
            at = self.product.commit(at, Event.DONE)
        elif at.action is Action.COMMIT:
            if lane.id.holder == run.number and self._has_sent(lane.id):
                lane = lane._replace(id=lane.id.commit_sent())
        elif at.is_lane_released:
            lane = self.released(run.number, lane, is_held=False)
        return self.go(at, scene), lane


_REFUSALS = {
    Fault.REFUSED: Event.REFUSED,
    Fault.REFUSED_FOR_GOOD: Event.REFUSED_FOR_GOOD,
}
_SETTLED = {LanePhase.READY: Event.LANE_READY, LanePhase.FENCED: Event.LANE_FENCED}

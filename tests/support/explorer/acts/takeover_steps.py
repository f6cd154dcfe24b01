"""Executes the actions of the take-over machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from onceflow.errors import CorruptionError
from onceflow.protocol.compare import CheckpointFacts, Decision
from onceflow.protocol.identity import LaneId
from onceflow.protocol.lane import LanePhase
from onceflow.protocol.tails import OutputTails
from onceflow.protocol.takeover import LaneFenced, OwnerRead, TakeoverEvent, TakeoverPhase, is_mine
from tests.support.explorer.checks import Truth
from tests.support.explorer.kafka import FOREGROUND, Handle, Lane
from tests.support.explorer.product import tail
from tests.support.explorer.run import Executor, Outcome, Outcomes, Run, Scene, Stage
from tests.support.explorer.scope import KEPT, Beginning, Fault
from tests.support.explorer.spark import Checkpoint


class TakeoverSteps(Executor):
    """From the first look at `owner` to the decision how to go on."""

    def fresh(self, index: int) -> Run:
        """A run that has not begun."""
        at = self.product.claim_of(index, self.scope.lanes_of(index))
        return Run(index, Stage.TAKING_OVER, at)

    def initialise_owner(self, scene: Scene) -> Outcomes:
        run, owner, _ = scene
        result = owner.id.initialised_by(run.number)
        if result is None:
            return
        scene = scene._replace(owner=owner._replace(id=result.id))
        label = f"{run} claims: init_transactions(owner)"
        if not result.is_done:
            yield Outcome(f"{label} aborts an open claim", scene)
            return
        yield Outcome(
            label, self.go(self.product.take_over(run.position, TakeoverEvent.DONE), scene)
        )

    def read_owner(self, scene: Scene) -> Outcomes:
        run, owner, _ = scene
        is_read_back = run.position.phase is TakeoverPhase.READING_BACK
        if is_read_back and not owner.can_read(run.number, FOREGROUND):
            return
        if not self.can_read_owner(run.number, FOREGROUND, owner):
            return
        scene = scene._replace(owner=owner.read_ended(run.number, FOREGROUND))
        at = self.product.take_over(run.position, OwnerRead(owner.entry))
        label = f"{run} reads owner ({run.position.phase.name}): {owner}"
        yield Outcome(label, self.go(at, scene))

    def write_claim(self, scene: Scene) -> Outcomes:
        run, owner, _ = scene
        if run.is_sent:
            yield from self._claim_answers(scene)
            return
        claim = run.position.state.claim
        label = f"{run} claims: writes owner with token {claim.token}, sends EndTxn(commit)"
        if owner.id.holder == run.number:
            sent = owner._replace(id=owner.id.opened(claim).commit_sent())
        else:
            sent, label = owner, f"{label}, with a stale epoch"
        yield Outcome(label, scene._replace(run=run._replace(is_sent=True), owner=sent))

    def _claim_answers(self, scene: Scene) -> Outcomes:
        run, owner, _ = scene
        answers = []
        if owner.id.holder != run.number:
            answers.append((TakeoverEvent.FENCED, "answered: fenced"))
        elif owner.id.is_acknowledged:
            answers.append((TakeoverEvent.DONE, "acknowledged"))
        if Fault.LOST_ANSWER in self.scope.faults:
            answers.append((TakeoverEvent.UNKNOWN, "not answered"))
        answered = scene._replace(
            run=run._replace(is_sent=False),
            owner=owner._replace(id=owner.id.dropped_by(run.number)),
        )
        for event, text in answers:
            at = self.product.take_over(run.position, event)
            yield Outcome(f"{run} claims: its commit is {text}", self.go(at, answered))

    def fence_lane(self, scene: Scene, lane: Lane, number: int) -> Outcomes:
        run = scene.run
        lane_id = LaneId(0, number)
        result = lane.id.initialised_by(run.number)
        if lane_id not in run.position.state.to_fence or result is None:
            return
        lane = lane._replace(id=result.id)
        label = f"{run} fences: init_transactions(lane {number})"
        if not result.is_done:
            yield Outcome(f"{label} aborts an open transaction", (*scene, lane))
            return
        if number < self.scope.lanes_of(run.number):
            lane = lane.handled(run.number, Handle(LanePhase.READY))
        else:
            lane = lane.without(run.number)
        at = self.product.take_over(run.position, LaneFenced(lane_id))
        yield Outcome(label, (*self.go(at, scene), lane))

    def read_head(self, scene: Scene, truth: Truth) -> Outcomes:
        run, _, heads = scene
        if not self.can_read_head(run.number, heads):
            return
        scene = scene._replace(run=run._replace(head=heads.entry), heads=heads.without(run.number))
        token = run.position.state.claim.token
        truth = truth._replace(newest_reader=max(truth.newest_reader, token))
        at = self.product.take_over(run.position, TakeoverEvent.DONE)
        yield Outcome(f"{run} reads head: {heads.entry}", (*self.go(at, scene), truth))

    def compare(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run = scene.run
        head = run.head.entry if run.head else None
        facts = checkpoint.facts()
        if self.scope.begins in {Beginning.FORK, Beginning.MOVED}:
            is_fork = self.scope.begins is Beginning.FORK
            copied = self.product.copied(self.scope.lanes_of(0), is_fork=is_fork)
            facts = replace(facts, copied=copied)
        is_asked = head is not None or facts.is_blank or facts.beginning is not None
        found = {p: end.header for p, end in self.output.tails.items()} if is_asked else {}
        decision = self.product.rules.compare(facts, head, written=found).decision
        event = TakeoverEvent.HALT if decision is Decision.HALT else TakeoverEvent.GO_ON
        at = self.product.take_over(run.position, event)
        scene = self.go(at, scene)
        if at.phase is TakeoverPhase.OWNED:
            scene = self._settle(decision, scene, facts)
        label = (
            f"{run} compares: planned {checkpoint.planned}, done {checkpoint.done}, head at"
            f" {run.head}: {decision.name}"
        )
        yield Outcome(label, (*scene, checkpoint))

    @cached_property
    def output(self) -> OutputTails:
        """Tails of the output before the first run. `head` covers what came later."""
        return OutputTails(
            {
                Beginning.LEDGER_SET_BACK: {0: tail(KEPT, generation=1, batch_id=7)},
                Beginning.OUTPUT_ALONE: {0: tail(KEPT, generation=1, batch_id=7)},
                Beginning.TWO_GENERATIONS: {
                    0: tail(KEPT + 1, generation=2, batch_id=0),
                    1: tail(3, generation=1, batch_id=7),
                },
            }.get(self.scope.begins, {})
        )

    def _settle(self, decision: Decision, scene: Scene, facts: CheckpointFacts) -> Scene:
        run = scene.run
        if decision in {Decision.REGISTER, Decision.NEW_GENERATION, Decision.REBUILD}:
            lanes = self.scope.lanes_of(run.number)
            entry = self.product.registration(run.number, run.token, lanes, run.head)
            if facts.beginning is not None:
                entry = self.product.begun_after(facts.beginning, entry)
            if decision is Decision.NEW_GENERATION:
                entry = self.product.begun_from(self.output, entry, run.head)
            if decision is Decision.REBUILD:
                try:
                    entry = self.product.rebuilt_from(self.output, entry, facts)
                except CorruptionError:
                    is_owner = is_mine(scene.owner.entry, str(run))
                    return scene._replace(run=run.ended(Stage.HALTED if is_owner else Stage.ENDED))
            at = self.product.propose_head(entry, run.head)
            return self.go(at, scene._replace(run=run._replace(stage=Stage.REGISTERING)))
        is_repair = decision is Decision.REPAIR_PLAN
        stage = Stage.REPAIRING if is_repair else Stage.STARTING
        return scene._replace(run=run._replace(stage=stage))

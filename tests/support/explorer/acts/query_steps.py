"""Steps of Spark between a take-over and a commit: read, plan, run and log batches."""

from __future__ import annotations

from onceflow.protocol.ledger import BatchPlan
from onceflow.protocol.takeover import is_mine
from tests.support.explorer.checks import Truth, on_spark_commit
from tests.support.explorer.product import batch_plan
from tests.support.explorer.run import Executor, Outcome, Outcomes, Scene, Stage
from tests.support.explorer.scope import PlanReads
from tests.support.explorer.spark import Checkpoint, LogWrites, Plan


class QuerySteps(Executor):
    """The micro-batch engine of a run."""

    def repair_plan(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run, head = scene.run, scene.run.head
        assert head is not None
        assert head.input is not None
        if not is_mine(scene.owner.entry, str(run)):
            label = f"{run} reads owner before its repair: it is fenced"
            yield Outcome(label, (*scene._replace(run=run.ended()), checkpoint))
            return
        start, end = head.input
        repaired = checkpoint.repaired(head.batch, Plan(end, head.clock, start))
        label = f"{run} repairs offsets/{head.batch} from head"
        scene = scene._replace(run=run._replace(stage=Stage.STARTING))
        yield Outcome(label, (*scene, repaired))

    def start_query(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run = scene.run
        batch = checkpoint.next_batch()
        if batch > self.scope.last_batch:
            scene = scene._replace(run=run.ended(Stage.FINISHED))
            yield Outcome(f"{run}: nothing is left to do", (*scene, checkpoint))
            return
        start = checkpoint.start(batch)
        run = run._replace(batch=batch, start=start, stage=Stage.PLANNING)
        if batch > checkpoint.planned:
            label = f"{run} starts the query: batch {batch} is to be planned"
            yield Outcome(label, (*scene._replace(run=run), checkpoint))
            return
        plan = checkpoint.plans[batch]
        label = f"{run} starts the query: batch {batch} replays input [{start},{plan.end})"
        after = self._execute(scene._replace(run=run._replace(end=plan.end)), plan)
        yield Outcome(label, (*after, checkpoint))

    def plan_batch(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run = scene.run
        if run.batch <= checkpoint.planned:
            label = f"{run}: offsets/{run.batch} exists already, Spark fails the query"
            yield Outcome(label, (*scene._replace(run=run.ended()), checkpoint))
        elif self.scope.log_writes is LogWrites.CHECK_THEN_RENAME:
            label = f"{run} plans batch {run.batch}: offsets/{run.batch} does not exist yet"
            scene = scene._replace(run=run._replace(stage=Stage.RENAMING))
            yield Outcome(label, (*scene, checkpoint))
        else:
            yield from self.write_plan(scene, checkpoint)

    def write_plan(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run = scene.run
        over = ", over another plan" if run.batch <= checkpoint.planned else ""
        for end in range(run.start + 1, run.start + 1 + self.scope.plan_variants):
            label = f"{run} writes offsets/{run.batch}: input [{run.start},{end}){over}"
            plan = Plan(end, clock=run.number)
            after = self._execute(scene._replace(run=run._replace(end=end)), plan)
            yield Outcome(label, (*after, checkpoint.planned_as(run.batch, plan)))

    def execute_batch(self, scene: Scene, checkpoint: Checkpoint) -> Outcomes:
        run = scene.run
        start, plan = checkpoint.start(run.batch), checkpoint.plans[run.batch]
        claimed = batch_plan(start, plan.end, plan.clock)
        label = f"{run} runs batch {run.batch}; offsets/{run.batch} now ends at {plan.end}"
        yield Outcome(label, (*self._propose(scene, claimed), checkpoint))

    def log_batch(self, scene: Scene, checkpoint: Checkpoint, truth: Truth) -> Outcomes:
        run = scene.run
        is_exclusive = self.scope.log_writes is LogWrites.EXCLUSIVE
        if is_exclusive and run.batch <= checkpoint.done:
            label = f"{run}: commits/{run.batch} exists already, Spark fails the query"
            yield Outcome(label, (*scene._replace(run=run.ended()), checkpoint, truth))
            return
        following = run._replace(stage=Stage.PLANNING, batch=run.batch + 1, start=run.end, end=0)
        if following.batch > self.scope.last_batch:
            following = run.ended(Stage.FINISHED)
        yield Outcome(
            f"{run} writes commits/{run.batch}",
            (*scene._replace(run=following), checkpoint.logged(run.batch), truth),
            on_spark_commit(run.number, run.batch, run.end, truth),
        )

    def _execute(self, scene: Scene, plan: Plan) -> Scene:
        run = scene.run
        if self.scope.plan_reads is PlanReads.FROM_CHECKPOINT:
            return scene._replace(run=run._replace(stage=Stage.EXECUTING))
        return self._propose(scene, batch_plan(run.start, plan.end, plan.clock))

    def _propose(self, scene: Scene, plan: BatchPlan) -> Scene:
        run = scene.run
        assert run.head is not None
        key = (run.number, run.batch)
        entry = self.product.successor(run.head, self.scope.delivery, run.token, key, plan)
        at = self.product.propose_batch(entry, run.head)
        return self.go(at, scene._replace(run=run._replace(stage=Stage.COMMITTING)))

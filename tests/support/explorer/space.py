"""The state space of a scope: its worlds, and the steps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from onceflow.protocol import commit, takeover
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import FencingToken
from tests.support.explorer.acts.commit_steps import CommitSteps
from tests.support.explorer.acts.kafka_steps import KafkaSteps
from tests.support.explorer.acts.query_steps import QuerySteps
from tests.support.explorer.acts.takeover_steps import TakeoverSteps
from tests.support.explorer.acts.task_steps import TaskSteps
from tests.support.explorer.checks import Append, Truth, on_halt
from tests.support.explorer.kafka import Handle, HeadLog, Lane, Owner, TransactionalId
from tests.support.explorer.product import Product, batch_plan
from tests.support.explorer.run import Outcome, Outcomes, Run, Scene, Stage
from tests.support.explorer.scope import KEPT, Beginning, Scope
from tests.support.explorer.spark import Checkpoint, Plan
from tests.support.explorer.steps import ONES, WIDTH, Mapping, Note, Step, Values

World: TypeAlias = int
OWNER, HEADS, TRUTH, CHECKPOINT, LANES = 0, 1, 2, 3, 4
"""Places of the parts in a world; the lanes are followed by the runs."""


class Space:
    """All worlds of a scope. One more run is there that never begins by itself: see `liveness`."""

    def __init__(self, scope: Scope, product: Product, kinds: list[Values] | None = None) -> None:
        self.scope = scope
        self.product = product
        self._takeover = TakeoverSteps(scope, product)
        self._query = QuerySteps(scope, product)
        self._commit = CommitSteps(scope, product)
        self.lanes = range(scope.all_lanes)
        self.runs = range(scope.runs + 1)
        self._first_run = LANES + len(self.lanes)
        self.kinds = kinds if kinds is not None else self._new_kinds()
        self._fresh = [self.kinds[-1].number(self._takeover.fresh(i)) for i in self.runs]
        self.kafka_steps = self._list_kafka_steps()
        self._renewals = [self._list_renewals(i) for i in self.runs]
        self._run_steps = [self._list_run_steps(i) for i in self.runs]
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._runs_mask = sum(ONES << WIDTH * (self._first_run + i) for i in self.runs)
        self._endings = [self._list_endings(i) for i in self.runs]
        self._swaps = self._list_swaps()
        self._is_symmetric = scope.is_symmetric
        self._lane_mask = ONES << WIDTH * LANES
        self._unswapped = (ONES << WIDTH * TRUTH) | (ONES << WIDTH * CHECKPOINT)

    def _new_kinds(self) -> list[Values]:
        lane, run = Values(), Values()
        shared = [Values() for _ in range(LANES)]
        return [*shared, *(lane for _ in self.lanes), *(run for _ in self.runs)]

    # ---- worlds

    def initial(self) -> World:
        """The world in which no run has begun."""
        parts: list[object] = [Owner(), HeadLog(), Truth(), Checkpoint()]
        if self.scope.begins is Beginning.AFTER_ONE_BATCH:
            gone = -1
            lanes = self.scope.lanes_of(0)
            head = self.product.registration(gone, FencingToken(0), lanes)
            plan = batch_plan(0, 1, clock=gone)
            delivery = self.scope.delivery
            head = self.product.successor(head, delivery, FencingToken(0), (gone, 0), plan)
            done = Plan(1, gone)
            truth = Truth((done,))
            if delivery is not Delivery.EXACTLY_ONCE:
                truth = truth.appended(Append(gone, head))
            parts = [Owner(), HeadLog(head), truth, Checkpoint((done,), 0)]
        elif self.scope.begins is Beginning.OUTPUT_ALONE:
            parts[TRUTH] = Truth(kept=KEPT)
        elif self.scope.begins is Beginning.LEDGER_SET_BACK:
            head = self.product.registration(-1, FencingToken(0), self.scope.lanes_of(0))
            parts = [Owner(), HeadLog(head), Truth(kept=KEPT), Checkpoint()]
        elif self.scope.begins is Beginning.TWO_GENERATIONS:
            done = Plan(1, -1)
            parts[TRUTH:] = [Truth((done,), kept=KEPT), Checkpoint((done,), 0)]
        elif self.scope.begins is Beginning.FORK:
            done = Plan(1, -1)
            parts[TRUTH:] = [Truth((done,), kept=-1), Checkpoint((done,), 0)]
        elif self.scope.begins is Beginning.MOVED:
            done, head = Plan(1, -1), self.product.of_origin(self.scope.lanes_of(0))
            parts = [Owner(), HeadLog(head), Truth((done,)), Checkpoint((done,), 0)]
        parts += [Lane(TransactionalId(), tuple(Handle() for _ in self.runs)) for _ in self.lanes]
        numbers = [kind.number(part) for kind, part in zip(self.kinds, parts, strict=False)]
        return sum(n << WIDTH * place for place, n in enumerate([*numbers, *self._fresh]))

    def part(self, world: World, place: int) -> Any:
        """Value of one part."""
        return self.kinds[place].known[world >> WIDTH * place & ONES]

    def run(self, world: World, index: int) -> Run:
        """Value of one run."""
        run: Run = self.part(world, self._first_run + index)
        return run

    def canonical(self, world: World) -> World:
        """A world or its mirror image, with lane 0 and lane 1 renamed: the same one for both.

        Lanes are handed out in no order and fenced in any order, so the two have the same future.
        """
        if not self._is_symmetric:
            return world
        mask = self._lane_mask
        lane_0, lane_1 = world & mask, world >> WIDTH & mask
        if lane_0 < lane_1:
            return world
        mirrored = world & self._unswapped | lane_0 << WIDTH | lane_1
        for swap in self._swaps:
            mirrored |= swap[world & swap.looks]
        return mirrored if lane_0 > lane_1 else min(world, mirrored)

    def without_others(self, world: World, index: int) -> World:
        """A number that is equal for worlds which differ only in what other runs know."""
        return world & ~self._runs_mask | world & ONES << WIDTH * (self._first_run + index)

    def alone(self, world: World, index: int) -> World:
        """The same world in which every other run is dead; its messages stay."""
        for other in self.runs:
            if other != index:
                world = self._ended(world, other)
        return world

    # ---- steps

    def steps_at(self, world: World) -> tuple[Step, ...]:
        """Kinds of steps that are possible by what the runs are busy with."""
        runs = world & self._runs_mask
        if runs not in self._steps:
            steps = [*self.kafka_steps]
            for index in self.runs[:-1]:
                steps += self.steps_of(world, index)
                # Who comes first is called R0: a run begins after the one before it.
                if world >> WIDTH * (self._first_run + index) & ONES == self._fresh[index]:
                    break
            self._steps[runs] = tuple(steps)
        return self._steps[runs]

    def steps_of(self, world: World, index: int) -> tuple[Step, ...]:
        """The same for one run."""
        run = self.run(world, index)
        if run.stage.is_final:
            return ()
        what = run.at.action if run.at else run.stage
        renewals = self._renewals[index] if run.stage is not Stage.TAKING_OVER else ()
        return (*self._run_steps[index][what], *renewals)

    def outcomes(
        self, world: World, steps: tuple[Step, ...]
    ) -> Iterator[tuple[str, World, str | None]]:
        """Label, next world and violation of everything that these steps may do."""
        for step in steps:
            for bits, label, note in step[world & step.looks]:
                after, violation = world & step.keeps | bits, None
                if note is not None:
                    after, violation = self.noted(after, note)
                yield label, after, violation

    def noted(self, world: World, note: Note) -> tuple[World, str | None]:
        """A world after a step that violated something, or ended a run."""
        violation, over = note
        if over is not None:
            violation = violation or self._check_halt(world, over)
            world = self._ended(world, over)
        return world, violation

    def _check_halt(self, world: World, index: int) -> str | None:
        if self.run(world, index).stage is not Stage.HALTED:
            return None
        return on_halt(
            index,
            self.part(world, OWNER).entry,
            self.part(world, CHECKPOINT),
            self.part(world, TRUTH),
        )

    def _ended(self, world: World, index: int) -> World:
        for ending in self._endings[index]:
            world = world & ~ending.looks | ending[world & ending.looks]
        return world

    # ---- tables, made once

    def _step(
        self, function: Callable[..., Outcomes], *places: int, run: int | None = None
    ) -> Step:
        return Step(self.kinds, places, function, run)

    def _list_kafka_steps(self) -> list[Step]:
        kafka = KafkaSteps(self.scope)
        lanes = [(_at(kafka.coordinate_lane, n), LANES + n) for n in self.lanes]
        tasks = [(_at(TaskSteps().write, n), LANES + n) for n in self.lanes]
        disk = [self._step(_lose_commit, CHECKPOINT)] if self.scope.loses_commits else []
        return [
            *disk,
            self._step(kafka.coordinate_owner, OWNER),
            *(self._step(function, place, HEADS, TRUTH) for function, place in lanes),
            *(self._step(function, place, TRUTH) for function, place in tasks),
        ]

    def _list_run_steps(self, index: int) -> dict[object, tuple[Step, ...]]:
        places = (self._first_run + index, OWNER, HEADS)

        def one(function: Callable[..., Outcomes], *more: int) -> tuple[Step, ...]:
            return (self._step(_with_scene(function), *places, *more, run=index),)

        def per_lane(function: Callable[..., Outcomes], *more: int) -> tuple[Step, ...]:
            return tuple(
                self._step(_with_scene(function, n), *places, LANES + n, *more, run=index)
                for n in self.lanes
            )

        take_over, query, commits = self._takeover, self._query, self._commit
        return {
            takeover.TakeoverAction.INITIALISE_OWNER: one(take_over.initialise_owner),
            takeover.TakeoverAction.READ_OWNER: one(take_over.read_owner),
            takeover.TakeoverAction.WRITE_CLAIM: one(take_over.write_claim),
            takeover.TakeoverAction.FENCE_LANES: per_lane(take_over.fence_lane),
            takeover.TakeoverAction.READ_HEAD: one(take_over.read_head, TRUTH),
            takeover.TakeoverAction.COMPARE: one(take_over.compare, CHECKPOINT),
            Stage.REPAIRING: one(query.repair_plan, CHECKPOINT),
            Stage.STARTING: one(query.start_query, CHECKPOINT),
            Stage.PLANNING: one(query.plan_batch, CHECKPOINT),
            Stage.RENAMING: one(query.write_plan, CHECKPOINT),
            Stage.EXECUTING: one(query.execute_batch, CHECKPOINT),
            Stage.LOGGING: one(query.log_batch, CHECKPOINT, TRUTH),
            commit.Action.ACQUIRE_LANE: per_lane(commits.acquire_and_send, TRUTH),
            commit.Action.SEND_RECORDS: per_lane(commits.await_task, TRUTH),
            commit.Action.APPEND_RECORDS: (
                *per_lane(commits.append_before, TRUTH),
                *one(commits.append_after, TRUTH),
            ),
            commit.Action.SEND_HEAD: per_lane(commits.send_rest, TRUTH),
            commit.Action.COMMIT: per_lane(commits.answer_commit),
            commit.Action.READ_OWNER: one(commits.read_owner),
            commit.Action.RESETTLE_LANE: per_lane(commits.resettle),
            commit.Action.READ_HEAD: one(commits.read_head, TRUTH),
        }

    def _list_renewals(self, index: int) -> list[Step]:
        renewals = [(_at(self._commit.renew, index, n), LANES + n) for n in self.lanes]
        return [self._step(function, place, OWNER, run=index) for function, place in renewals]

    def _list_endings(self, index: int) -> list[Mapping]:
        def without(part: Any) -> Any:
            return part.without(index)

        def ended(run: Run) -> Run:
            return run if run.stage.is_final else run.ended()

        places = [OWNER, HEADS, *(LANES + n for n in self.lanes)]
        endings = [Mapping(self.kinds[place], place, without) for place in places]
        place = self._first_run + index
        return [*endings, Mapping(self.kinds[place], place, ended)]

    def _list_swaps(self) -> list[Mapping]:
        def swapped(pairs: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
            return frozenset((run, 1 - n if n >= 0 else n) for run, n in pairs)

        def owner(part: Owner) -> Owner:
            return part._replace(waiting=swapped(part.waiting))

        def heads(part: HeadLog) -> HeadLog:
            tail = tuple((1 - n, head, is_committed) for n, head, is_committed in part.tail)
            return HeadLog(part.entry, tail, swapped(part.waiting))

        def run(part: Run) -> Run:
            return part._replace(at=self.product.swapped(part.at)) if part.at else part

        runs = [self._first_run + index for index in self.runs]
        return [
            Mapping(self.kinds[OWNER], OWNER, owner),
            Mapping(self.kinds[HEADS], HEADS, heads),
            *(Mapping(self.kinds[place], place, run) for place in runs),
        ]


def _lose_commit(checkpoint: Checkpoint) -> Outcomes:
    """The disk of the checkpoint, while the plan of the next batch is there."""
    if not checkpoint.has_lost and checkpoint.planned == checkpoint.done + 1 > 0:
        label = f"disk: commits/{checkpoint.done} is lost"
        yield Outcome(label, (checkpoint.commit_lost(),))


def _at(function: Callable[..., Outcomes], *numbers: int) -> Callable[..., Outcomes]:
    def at(*parts: Any) -> Outcomes:
        return function(*parts, *numbers)

    return at


def _with_scene(function: Callable[..., Outcomes], *numbers: int) -> Callable[..., Outcomes]:
    def with_scene(run: Run, owner: Owner, heads: HeadLog, *rest: Any) -> Outcomes:
        return function(Scene(run, owner, heads), *rest, *numbers)

    return with_scene

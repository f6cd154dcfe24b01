"""Lanes, fences and outcomes: gaps in the tests that only mutants showed.

These tests belong to mutants that every other test let pass, or that took Spark to be noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from onceflow.clock import Deadline
from onceflow.contracts.sink import Incarnation, OutputRecord
from onceflow.errors import (
    AbortableError,
    CorruptionError,
    DeadlineError,
    FencedError,
    OutcomeUnknownError,
)
from onceflow.protocol.compare import CheckpointFacts, Remedy
from onceflow.protocol.lane import LanePhase
from onceflow.runtime.commit.lanes import Lane
from tests.faults.mutants.stage import VALUES, FakeWorld, Stage
from tests.support.drivers.driver import Driver
from tests.support.drivers.faulty import Faults, FaultyIncarnation
from tests.support.eventually import eventually
from tests.support.fakes.sink import Fault


def wait_for_lanes(driver: Driver) -> None:
    """Until the lane that the registration used is renewed, so that the first lane comes first."""
    lanes = driver.pool.lanes.values()
    eventually(lambda: {lane.phase for lane in lanes}, lambda phases: phases == {LanePhase.READY})


def take_all_lanes(driver: Driver, stage: Stage) -> list[Lane]:
    """In their order."""
    wait_for_lanes(driver)
    return [driver.pool.acquire(stage.soon()) for _ in range(driver.lanes)]


class LostClaim(FaultyIncarnation):
    """An incarnation of the owner id whose commit does not happen, and is not answered."""

    def __init__(self, inner: Incarnation) -> None:
        super().__init__(inner, Faults())

    def commit(self, deadline: Deadline) -> None:
        self.abort(deadline)
        raise OutcomeUnknownError("the claim was lost on purpose")


class LostBatch(FaultyIncarnation):
    """An incarnation whose commit is never sent if it carries more records than one."""

    def __init__(self, inner: Incarnation) -> None:
        super().__init__(inner, Faults())
        self._sent = 0

    def send(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        sent = super().send(topic, records, deadline)
        self._sent += sent
        return sent

    def commit(self, deadline: Deadline) -> None:
        if self._sent > 1:
            raise OutcomeUnknownError("the request was lost on purpose")
        super().commit(deadline)


def test_a_lane_that_was_renewed_behind_a_successor_is_never_written_on(stage: Stage) -> None:
    """zombie: both lanes in hand | successor: fence, batch 0 | zombie: renews lane 1, batch 0"""
    zombie, successor = stage.driver(lanes=2), stage.driver(lanes=2)
    zombie.take_over()
    first, second = take_all_lanes(zombie, stage)
    successor.take_over()
    wait_for_lanes(successor)
    successor.commit(0, VALUES)
    # Else the successor could fence the zombie by renewing a lane of its own.
    wait_for_lanes(successor)
    zombie.pool.release(second)
    with pytest.raises(FencedError):
        zombie.commit(0, VALUES)
    successor.commit(1, VALUES)
    zombie.pool.release(first)
    stage.check(batches=2)


def test_a_zombie_that_begins_on_a_lane_its_successor_does_not_use_is_fenced(stage: Stage) -> None:
    zombie, successor = stage.driver(lanes=2), stage.driver(lanes=1)
    zombie.take_over()
    wait_for_lanes(zombie)
    lane = zombie.pool.acquire(stage.soon())
    assert lane.lane_id.lane == 0
    successor.take_over()
    successor.commit(0, VALUES)
    with pytest.raises(FencedError):
        zombie.commit(0, VALUES)
    zombie.pool.release(lane)
    stage.check(batches=1)


def test_a_lane_that_cannot_be_initialised_ends_the_take_over(stage: Stage) -> None:
    faults = Faults(dies_on_lanes=1)
    with pytest.raises(DeadlineError):
        stage.driver(wrap=faults.wrap).take_over()
    assert faults.fired == ["dies_on_lanes"]


def test_a_claim_that_was_not_committed_fences_nobody(stage: Stage) -> None:
    """owner: first | second: claim, aborted, no answer | second reads back: as before, stops"""
    first = stage.driver()
    first.take_over()
    first.commit(0, VALUES)
    opened: list[str] = []

    def lose_claims(incarnation: Incarnation) -> Incarnation:
        opened.append(incarnation.transactional_id)
        return LostClaim(incarnation)

    with pytest.raises(AbortableError, match="no other instance has claimed"):
        stage.driver(wrap=lose_claims).take_over()
    assert opened == [f"onceflow.{stage.name}.owner"]
    first.commit(1, VALUES)
    stage.check(batches=2)


def test_a_commit_whose_answer_is_lost_is_not_repeated(stage: Stage) -> None:
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    faults.loses_answer = 1
    driver.commit(0, VALUES)
    assert faults.fired == ["loses_answer"]
    driver.commit(1, VALUES)
    stage.check(batches=2)


def test_the_position_is_committed_with_the_batch_or_not_at_all(stage: Stage) -> None:
    """batch 0 is sent and never committed | the successor ends it | the group knows nothing"""
    driver, successor = stage.driver(wrap=LostBatch), stage.driver()
    driver.take_over()

    def unreadable(slot: int, deadline: object) -> None:
        raise DeadlineError("the ledger cannot be read, on purpose")

    driver.ledger.read_head = unreadable  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError, match="on purpose"):
        driver.commit(0, VALUES)
    successor.take_over()
    assert stage.group_offsets() == {}
    stage.check(batches=0)
    successor.commit(0, VALUES)
    eventually(stage.group_offsets, lambda found: found == {(stage.name, 0): 10})


def test_a_replay_with_other_rows_halts_and_writes_nothing(stage: Stage) -> None:
    driver = stage.driver()
    driver.take_over()
    driver.commit(0, VALUES)
    with pytest.raises(CorruptionError, match="not deterministic"):
        driver.commit(0, [*VALUES[:-1], b'{"n":"another"}'])
    driver.commit(1, VALUES)
    stage.check(batches=2)


def test_a_batch_older_than_the_head_is_never_skipped(stage: Stage) -> None:
    driver = stage.driver()
    driver.take_over()
    for batch_id in range(3):
        driver.commit(batch_id, VALUES)
    with pytest.raises(CorruptionError, match="contradict"):
        driver.commit(0, VALUES)
    stage.check(batches=3)


def test_sequences_go_on_after_a_restart(stage: Stage) -> None:
    for batch_id in range(2):
        driver = stage.driver()
        driver.take_over()
        driver.commit(batch_id, VALUES)
    stage.check(batches=2)


def test_sequences_go_on_in_a_new_generation(stage: Stage) -> None:
    first = stage.driver()
    first.take_over()
    first.commit(0, VALUES)
    second = stage.driver(facts=lambda _: CheckpointFacts(None), remedy=Remedy.NEW_GENERATION)
    second.take_over()
    assert second.head is not None
    assert second.head.generation == 2
    second.commit(0, VALUES)
    stage.check(batches=2)


def test_a_commit_request_that_arrives_late_commits_nothing(memory: FakeWorld) -> None:
    """lane 0: batch 0, EndTxn on its way | lane 0 again: batch 0 + C | the first EndTxn arrives"""
    with ExitStack() as stack:
        stage = Stage(memory, "p-late", stack)
        driver = stage.driver()
        driver.take_over()
        driver.commit(0, VALUES)
        lanes = [f"onceflow.{stage.name}.s0.l{lane}" for lane in range(3)]
        for lane in lanes:
            memory.kafka.arm(Fault.COMMIT_REQUEST_LATE, lane)
        driver.commit(1, VALUES)
        assert {fault for fault, _ in memory.kafka.fired} == {Fault.COMMIT_REQUEST_LATE}
        memory.kafka.deliver_late_requests()
        driver.commit(2, VALUES)
        stage.check(batches=3)

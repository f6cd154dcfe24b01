"""Two drivers, lost answers, foreign initialisations: the protocol against a real broker.

Drivers without Spark are held still between two steps; what they write is read back by a plain
client and checked for repeats and holes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from onceflow.clock import Deadline
from onceflow.errors import DeadlineError, FencedError, LineageError, OutcomeUnknownError
from onceflow.protocol.compare import CheckpointFacts
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.driver import QUERY_ID, Driver
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.outside.history import read_ledger


@pytest.fixture
def stage(broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[Stage]:
    with open_stage(broker.bootstrap_servers, topic("p")) as opened:
        yield opened


def test_a_driver_that_was_taken_over_writes_nothing_more(stage: Stage) -> None:
    zombie, successor = stage.driver(), stage.driver()
    zombie.take_over()
    zombie.commit(0, VALUES)
    successor.take_over()
    with pytest.raises(FencedError):
        zombie.commit(1, VALUES)
    successor.commit(1, VALUES)
    stage.check(batches=2)


def test_a_zombie_held_before_its_commit_is_fenced_by_its_successor(stage: Stage) -> None:
    """p: 40 rec (zombie, open) | successor: fence, 40 rec + C | zombie: EndTxn -> fenced"""
    successor = stage.driver()
    faults = Faults()
    zombie = stage.driver(wrap=faults.wrap)
    zombie.take_over()
    faults.before_commit = lambda: _take_over_and_commit(successor, 0)
    with pytest.raises(FencedError):
        zombie.commit(0, VALUES)
    assert faults.fired == ["before_commit"]
    stage.check(batches=1)


def test_two_drivers_in_turn_never_repeat_a_batch(stage: Stage) -> None:
    first, second = stage.driver(), stage.driver()
    first.take_over()
    for batch_id in range(0, 6, 2):
        first.commit(batch_id, VALUES)
        second.take_over()
        second.commit(batch_id + 1, VALUES)
        first = stage.driver()
        first.take_over()
        second = stage.driver()
    stage.check(batches=6)


@pytest.mark.parametrize("fault", ["loses_answer", "answers_fenced"])
def test_a_commit_whose_answer_is_lost_is_found_in_the_ledger(stage: Stage, fault: str) -> None:
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    setattr(faults, fault, 1)
    driver.commit(0, VALUES)
    driver.commit(1, VALUES)
    assert faults.fired == [fault]
    stage.check(batches=2)


@pytest.mark.parametrize("fault", ["loses_request", "refuses_records"])
def test_what_was_not_committed_is_written_again(stage: Stage, fault: str) -> None:
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    setattr(faults, fault, 1)
    driver.commit(0, VALUES)
    driver.commit(1, VALUES)
    assert faults.fired == [fault]
    stage.check(batches=2)


def test_an_answer_lost_while_another_process_initialises_the_lane(stage: Stage) -> None:
    """p: 40 rec + C | foreign InitProducerId | the driver hears nothing, looks, goes on"""
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    faults.loses_answer = 1
    faults.before_commit = lambda: _initialise_idle_lanes(stage)
    driver.commit(0, VALUES)
    assert faults.fired == ["before_commit", "loses_answer"]
    driver.commit(1, VALUES)
    driver.commit(2, VALUES)
    stage.check(batches=3)


def test_a_foreign_client_on_our_lane_in_mid_transaction_loses_nothing(stage: Stage) -> None:
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    faults.before_commit = lambda: _initialise_lanes(stage, range(3))
    driver.commit(0, VALUES)
    assert faults.fired == ["before_commit"]
    driver.commit(1, VALUES)
    stage.check(batches=2)


def test_fewer_lanes_than_the_predecessor_fence_them_all(stage: Stage) -> None:
    """The zombie's transaction is open on lane 2; the successor uses lane 0 alone."""
    faults = Faults()
    zombie = stage.driver(wrap=faults.wrap, lanes=3)
    zombie.take_over()
    lanes = [zombie.pool.acquire(_soon(zombie)) for _ in range(2)]
    successor = stage.driver(lanes=1)
    faults.before_commit = lambda: _take_over_and_commit(successor, 0)
    with pytest.raises(FencedError):
        zombie.commit(0, VALUES)
    assert faults.fired == ["before_commit"]
    for lane in lanes:
        zombie.pool.release(lane)
    stage.check(batches=1)


def test_a_death_between_claim_and_fence_keeps_the_larger_layout(stage: Stage) -> None:
    """3 lanes, then one that dies after its claim with 1 lane, then 1 lane: still fences all 3."""
    faults = Faults()
    zombie = stage.driver(wrap=faults.wrap, lanes=3)
    zombie.take_over()
    lanes = [zombie.pool.acquire(_soon(zombie)) for _ in range(2)]
    deaths = Faults(dies_on_lanes=3)
    claimed_only = stage.driver(lanes=1, wrap=deaths.wrap)
    successor = stage.driver(lanes=1)

    def die_then_take_over() -> None:
        with pytest.raises(DeadlineError):
            claimed_only.take_over()
        assert deaths.fired == ["dies_on_lanes"] * 3
        _take_over_and_commit(successor, 0)

    faults.before_commit = die_then_take_over
    with pytest.raises(FencedError):
        zombie.commit(0, VALUES)
    assert faults.fired == ["before_commit"]
    for lane in lanes:
        zombie.pool.release(lane)
    stage.check(batches=1)


def test_an_outcome_that_nobody_can_tell_stops_the_driver(stage: Stage) -> None:
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap)
    driver.take_over()
    faults.loses_answer = 1
    reads = driver.ledger.read_head

    def unreadable(slot: int, deadline: object) -> None:
        raise DeadlineError("the ledger cannot be read, on purpose")

    driver.ledger.read_head = unreadable  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError):
        driver.commit(0, VALUES)
    driver.ledger.read_head = reads  # type: ignore[method-assign]
    successor = stage.driver()
    takeover = successor.take_over()
    assert takeover.head is not None
    assert takeover.head.batch.batch_id == 0
    stage.check(batches=1)


def test_a_driver_that_would_be_refused_has_written_nothing_but_its_claim(stage: Stage) -> None:
    first = stage.driver()
    first.take_over()
    first.commit(0, VALUES)
    stranger = stage.driver(facts=lambda head: CheckpointFacts("another-query", 4, 4))
    with pytest.raises(LineageError, match="another query"):
        stranger.take_over()
    again = stage.driver()
    again.take_over()
    again.commit(1, VALUES)
    stage.check(batches=2)
    assert {h["query_id"] for h in read_ledger(stage.bootstrap_servers, stage.name)} == {QUERY_ID}


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_death_before_finding_out_is_decided_by_the_next_start(
    stage: Stage, tmp_path: Path, attempt: int
) -> None:
    """p: 40 rec + C | the driver heard nothing and was killed | the successor skips the batch"""
    proof = tmp_path / f"crashed-{attempt}"
    armed = {"ONCEFLOW_CRASH_POINT": "commit_unknown:kill:1", "ONCEFLOW_CRASH_PROOF": str(proof)}
    command = [sys.executable, "-m", "tests.support.drivers.dying"]
    died = subprocess.run(
        [*command, stage.bootstrap_servers, stage.name],
        env={**os.environ, **armed},
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert proof.read_text() == "commit_unknown"
    successor = stage.driver()
    successor.take_over()
    successor.commit(0, VALUES)
    successor.commit(1, VALUES)
    stage.check(batches=2)


def _take_over_and_commit(driver: Driver, batch_id: int) -> None:
    driver.take_over()
    driver.commit(batch_id, VALUES)


def _initialise_lanes(stage: Stage, lanes: range) -> None:
    for lane in lanes:
        producer = Producer(
            {
                "bootstrap.servers": stage.bootstrap_servers,
                "transactional.id": f"onceflow.{stage.name}.s0.l{lane}",
            }
        )
        producer.init_transactions(20)


def _initialise_idle_lanes(stage: Stage) -> None:
    _initialise_lanes(stage, range(1, 3))


def _soon(driver: Driver) -> Deadline:
    return driver.clock.within(10.0)

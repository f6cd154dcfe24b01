"""Brokers that die, freeze, hand over what they lead, or can't be reached, under a driver.

On a cluster of three with replication 3 and min ISR 2. Each fault happens in the middle of a
transaction: its records are sent, and its commit is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.errors import OnceflowError
from tests.chaos import ChaosProxy
from tests.support.brokers.cluster import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    FaultyBroker,
    FaultyCluster,
    controller_of,
    coordinator_of,
    group_coordinator_of,
    leader_of,
    move_leader,
    partition_of_group,
    partition_of_transactional_id,
)
from tests.support.drivers.driver import Driver
from tests.support.drivers.faulty import Faults
from tests.support.drivers.here import finish, run_here, running_here
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.eventually import eventually
from tests.support.everything import some
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import set_topic

pytestmark = pytest.mark.crash

LANE = 0
HEAD_PARTITION = 1


@pytest.fixture
def stage(cluster: FaultyCluster, topic: Callable[[str], str]) -> Iterator[Stage]:
    with open_stage(cluster.bootstrap_servers, topic("p")) as opened:
        yield opened


@dataclass(frozen=True)
class Place:
    """Something that one broker leads for a stage."""

    topic: str
    partition: int


def head_of(stage: Stage) -> Place:
    return Place(f"onceflow.ledger.{stage.name}", HEAD_PARTITION)


def lane_of(stage: Stage) -> str:
    return f"onceflow.{stage.name}.s0.l{LANE}"


ROLES: dict[str, Callable[[FaultyCluster, Stage], FaultyBroker]] = {
    "leader of an output partition": lambda cluster, stage: leader_of(cluster, stage.name, 0),
    "leader of the ledger": lambda cluster, stage: leader_of(
        cluster, head_of(stage).topic, head_of(stage).partition
    ),
    "transaction coordinator": lambda cluster, stage: coordinator_of(cluster, lane_of(stage)),
    "group coordinator": lambda cluster, stage: group_coordinator_of(
        cluster, f"onceflow.{stage.name}"
    ),
    "controller": lambda cluster, stage: controller_of(cluster),
}
ACTS: dict[str, Callable[[FaultyBroker], None]] = {
    "kill": lambda broker: broker.kill(),
    "freeze": lambda broker: broker.freeze(),
    "stop": lambda broker: broker.stop(),
}


@dataclass
class Scene:
    """A driver of which the next commit meets a fault, and what may follow it."""

    stage: Stage
    faults: Faults
    driver: Driver

    def commit(self, batch_id: int, fault: Callable[[], None]) -> None:
        """Commit a batch with a fault before its EndTxn; a successor does it if the driver can't.

        It may give up in time, or not be able to tell what came of it: both are what the protocol
        says. The next developer has to know.
        """
        self.faults.before_commit = fault
        try:
            self.driver.commit(batch_id, VALUES)
        except OnceflowError:
            self.driver = self.successor()
            self.driver.commit(batch_id, VALUES)
        assert self.faults.fired == ["before_commit"]
        self.faults.fired.clear()

    def successor(self) -> Driver:
        driver = self.stage.hasty_driver(wrap=self.faults.wrap)
        driver.take_over()
        return driver


def open_scene(stage: Stage, **settings: Any) -> Scene:
    faults = Faults()
    driver = stage.hasty_driver(wrap=faults.wrap, **settings)
    driver.take_over()
    driver.commit(0, VALUES)
    return Scene(stage, faults, driver)


def test_a_broker_that_is_lost_in_the_middle_of_a_transaction(
    cluster: FaultyCluster, stage: Stage, random: Random
) -> None:
    batch_id = 1
    scene = open_scene(stage)
    for role in some([*ROLES], 2, random):
        lost, act = ROLES[role](cluster, stage), random.choice([*ACTS])
        scene.commit(batch_id, lambda lost=lost, act=act: ACTS[act](lost))  # type: ignore[misc]
        cluster.heal()
        scene.driver = scene.successor()
        scene.driver.commit(batch_id + 1, VALUES)
        batch_id += 2
    stage.check(batches=batch_id)


def test_a_coordinator_killed_between_prepare_commit_and_its_markers(
    cluster: FaultyCluster, stage: Stage
) -> None:
    """p1: 40 rec, leader frozen | PrepareCommit | coordinator dies | leader wakes | markers"""
    scene = open_scene(stage)
    coordinator = coordinator_of(cluster, lane_of(stage))
    other = next(b for b in cluster.brokers if b.node_id != coordinator.node_id)
    for partition in (0, 1):
        move_leader(cluster, stage.name, partition, other)
    move_leader(cluster, head_of(stage).topic, head_of(stage).partition, other)
    # Kafka answers a commit once PrepareCommit is in its log; markers follow.
    scene.commit(1, other.freeze)
    coordinator.kill()
    other.thaw()
    cluster.heal()
    scene.successor().commit(2, VALUES)
    stage.check(batches=3)


def test_leaders_that_move_in_the_middle_of_a_transaction(
    cluster: FaultyCluster, stage: Stage
) -> None:
    scene = open_scene(stage)
    group = f"onceflow.{stage.name}"
    places = [
        Place(stage.name, 0),
        head_of(stage),
        Place(TRANSACTION_STATE, partition_of_transactional_id(cluster, lane_of(stage))),
        Place(CONSUMER_OFFSETS, partition_of_group(cluster, group)),
    ]
    for batch_id, place in enumerate(places, start=1):
        scene.commit(batch_id, lambda place=place: _move_away(cluster, place))  # type: ignore[misc]
    stage.check(batches=1 + len(places))


def test_fewer_replicas_in_sync_than_the_topic_demands(
    cluster: FaultyCluster, stage: Stage
) -> None:
    """No broker takes the records until all three are there again."""
    set_topic(cluster.bootstrap_servers, stage.name, {"min.insync.replicas": "3"})
    driver = stage.hasty_driver(transaction_timeout_s=5.0)
    driver.take_over()
    driver.commit(0, VALUES)
    spare = next(
        broker
        for broker in cluster.brokers
        if broker.node_id not in {ROLES[r](cluster, stage).node_id for r in ("controller",)}
    )
    spare.kill()
    with pytest.raises(OnceflowError):
        driver.commit(1, VALUES)
    cluster.heal()
    successor = stage.hasty_driver()
    successor.take_over()
    successor.commit(1, VALUES)
    stage.check(batches=2)


def test_all_brokers_down_in_the_middle_of_a_transaction(
    cluster: FaultyCluster, stage: Stage
) -> None:
    scene = open_scene(stage)

    def outage() -> None:
        for broker in cluster.brokers:
            broker.kill()
        for broker in cluster.brokers:
            broker.restart()

    scene.commit(1, outage)
    cluster.heal()
    scene.successor().commit(2, VALUES)
    stage.check(batches=3)


@pytest.mark.parametrize(
    ("role", "instant"),
    [
        ("leader of an output partition", "before_records"),
        ("transaction coordinator", "before_commit"),
    ],
)
def test_a_driver_cut_off_from_one_broker(
    cluster: FaultyCluster, topic: Callable[[str], str], role: str, instant: str
) -> None:
    """Just before it needs it. Every other broker, and every other client, still reaches it."""
    servers = cluster.bootstrap_servers
    with (
        ChaosProxy(servers) as proxy,
        open_stage(servers, topic("p"), proxy.bootstrap_servers) as stage,
    ):
        scene = open_scene(stage, transaction_timeout_s=2.0, takeover_timeout_s=3.0)
        far = ROLES[role](cluster, stage)
        setattr(scene.faults, instant, lambda: proxy.cut(broker=far.node_id))
        with pytest.raises(OnceflowError):
            scene.driver.commit(1, VALUES)
        assert scene.faults.fired == [instant]
        proxy.heal()
        scene.successor().commit(1, VALUES)
        stage.check(batches=2)


def test_a_pipeline_goes_on_while_each_broker_in_turn_is_lost(
    cluster: FaultyCluster, tmp_path: Path, random: Random
) -> None:
    """The whole product: source, Spark, sink; brokers are killed or stopped, and come back."""
    job = ViewsJob(cluster.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(random, records=1_000, seconds=200)
    file = job.write_file(batch=200)
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(2)
        for broker in some(cluster.brokers, 1, random):
            ACTS[random.choice(["kill", "stop"])](broker)
            job.produce(random, records=500, seconds=100)
            # Batches are counted by what they read: some end before the last of these is produced.
            eventually(job.read, lambda read: read == len(job.produced), timeout_s=60)
            cluster.heal()
    finish(job, file)


def test_a_start_while_a_broker_is_down(cluster: FaultyCluster, tmp_path: Path) -> None:
    """Kafka could not create its transaction log with two brokers, but has it already."""
    job = ViewsJob(cluster.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(Random(1), records=500, seconds=100)
    file = job.write_file()
    run_here(file, job.bootstrap_servers)
    controller_of(cluster).kill()
    job.produce(Random(2), records=500, seconds=100)
    finish(job, file)


def _move_away(cluster: FaultyCluster, place: Place) -> None:
    now = leader_of(cluster, place.topic, place.partition)
    to = next(broker for broker in cluster.brokers if broker.node_id != now.node_id)
    move_leader(cluster, place.topic, place.partition, to)

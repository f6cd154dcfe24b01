"""A disk that is full and a clock that jumps, under a broker.

Only for processes of this machine: containers have the clock of their kernel and the disk of their
engine. A full disk under the checkpoint is played in `test_checkpoint_disks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.errors import OnceflowError
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.cluster import leader_of, move_leader
from tests.support.brokers.small_disk import small_disk
from tests.support.brokers.wrong_clock import ClockOffset
from tests.support.drivers.driver import Driver
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.eventually import eventually

pytestmark = pytest.mark.crash

HOUR_S = 3600.0
SMALL = 2
"""Node id of the broker with the small disk."""
SMALL_SEGMENTS = {
    # Otherwise Kafka asks the disk for far more than is ever written.
    "log.index.size.max.bytes": "65536",
    "log.segment.bytes": "1048576",
    "transaction.state.log.segment.bytes": "1048576",
    "offsets.topic.segment.bytes": "1048576",
}


def test_a_disk_that_is_full_under_a_broker(tmp_path: Path, topic: Callable[[str], str]) -> None:
    """It leads an output partition; the other two go on, and it comes back when there is room."""
    with small_disk(tmp_path / "disk") as disk:
        options = ClusterOptions(
            settings=SMALL_SEGMENTS,
            brokers=3,
            node_settings={SMALL: {"log.dirs": str(disk.folder / "data")}},
        )
        with (
            ChildProcessCluster(options) as cluster,
            open_stage(cluster.bootstrap_servers, topic("p")) as stage,
        ):
            small = cluster.brokers[SMALL - 1]
            driver = stage.driver(lanes=1)
            driver.take_over()
            driver.commit(0, VALUES)
            move_leader(cluster, stage.name, 0, small)
            disk.fill()
            # Kafka notices at the next write: a broker with no other disk ends.
            commit_somehow(stage, driver, 1)
            eventually(lambda: not small.is_running, timeout_s=60)
            assert leader_of(cluster, stage.name, 0).node_id != SMALL
            disk.free()
            cluster.heal()
            commit_somehow(stage, stage.driver(), 2)
            stage.check(batches=3)


def test_a_brokers_clock_that_jumps_in_the_middle_of_transactions(
    tmp_path: Path, topic: Callable[[str], str]
) -> None:
    clock = ClockOffset(tmp_path / "clock")
    options = ClusterOptions(node_environment={1: clock.environment})
    with (
        ChildProcessCluster(options) as cluster,
        open_stage(cluster.bootstrap_servers, topic("p")) as stage,
    ):
        faults = Faults()
        driver = stage.driver(wrap=faults.wrap)
        driver.take_over()
        driver.commit(0, VALUES)
        for batch_id, offset_s in enumerate([HOUR_S, 0.0, -HOUR_S, 0.0], start=1):
            faults.before_commit = lambda offset_s=offset_s: clock.set(offset_s)
            driver = commit_somehow(stage, driver, batch_id, wrap=faults.wrap)
            assert faults.fired == ["before_commit"]
            faults.fired.clear()
        stage.check(batches=5)


def commit_somehow(stage: Stage, driver: Driver, batch_id: int, **settings: object) -> Driver:
    """By this driver, or by its successor if it can't."""
    try:
        if driver.head is None:
            driver.take_over()
        driver.commit(batch_id, VALUES)
    except OnceflowError:
        driver = stage.driver(**settings)
        driver.take_over()
        driver.commit(batch_id, VALUES)
    return driver

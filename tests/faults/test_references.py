"""References that change while drivers are killed: every batch has the version of the ledger."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from tests.faults.test_crash_points import COMMIT, TAKE_OVER
from tests.faults.test_executors import FIRST_BATCHES_TIMEOUT_S, TWO_EXECUTORS, executors
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.deaths import die_here
from tests.support.drivers.here import run_here
from tests.support.drivers.service import Service, started
from tests.support.eventually import eventually
from tests.support.everything import some
from tests.support.jobs.names import NamesJob

DEATHS = {"take over": 1, "commit": 3}
"""Of a short run; see `test_crash_points`."""
KILLS = 2
MAX_ARRIVALS = 4
"""At the third, a batch was committed, so that each start leaves one with its versions."""
BATCH = 20
MIN_VERSIONS, MAX_CHANGES = 4, 150


def test_a_death_at_every_crash_point_leaves_each_batch_its_version(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    """Both references are others at each start."""
    job = NamesJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    drawn = [*some(COMMIT, DEATHS["commit"], random)]
    drawn += some(TAKE_OVER, DEATHS["take over"], random)
    job.produce(random, (MAX_ARRIVALS * len(drawn) + 4) * BATCH)
    file = job.write_file(BATCH)
    for point in drawn:
        job.change(random)
        job.change(random)
        arrivals = 1 if point in TAKE_OVER else random.randint(3, MAX_ARRIVALS)
        die_here(file, job, CrashPoint(point), arrivals)
    job.change(random)
    run_here(file, job.bootstrap_servers)
    job.check()
    assert len({*job.versions()}) > DEATHS["commit"]


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_kill_in_mid_run_leaves_each_batch_its_version(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    """SIGKILL of whole processes while input, file and topic go on changing."""
    job = NamesJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    file = job.write_file(BATCH)
    job.change(random)
    job.change(random)
    points = [*some(COMMIT, KILLS, random), *some(TAKE_OVER, 1, random)]
    for number, point in enumerate(points):
        arrivals = 1 if point in TAKE_OVER else random.randint(4, 6)
        crash = f"{point}:kill:{arrivals}"
        folder = tmp_path / f"{number}-{point}"
        with started(folder, file, job.bootstrap_servers, crash=crash) as service:
            while service.is_running and job.changes < MAX_CHANGES:
                _change(job, random, service)
        assert (folder / "crashed").is_file(), f"{crash} did not fire\n{service.errors[-4000:]}"
    run_here(file, job.bootstrap_servers)
    job.check()
    assert len({*job.versions()}) >= MIN_VERSIONS
    # Those of the last hundred batches, and what was written a moment ago.
    assert job.kept() <= 2 * job.changes + 2


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_rows_that_are_lost_with_all_executors_are_made_again(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    job = NamesJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    file = job.write_file(BATCH)
    job.change(random)
    job.produce(random)
    with started(
        tmp_path / "cluster", file, job.bootstrap_servers, environment=TWO_EXECUTORS
    ) as service:
        service.wait_for_batches(1, timeout_s=FIRST_BATCHES_TIMEOUT_S)
        victims = executors(service)
        assert victims
        for each in victims:
            each.send_signal(signal.SIGKILL)
        job.produce(random)
        _change(job, random, service)
        eventually(lambda: len(job.written()) == len(job.trades), timeout_s=180)
        service.drain()
    job.check()


def _change(job: NamesJob, random: Random, service: Service) -> None:
    """Change everything, and wait for a batch or the death of the service."""
    batches = len(service.of_kind("batch"))
    job.change(random)
    job.produce(random)
    eventually(
        lambda: not service.is_running or len(service.of_kind("batch")) > batches, timeout_s=120
    )

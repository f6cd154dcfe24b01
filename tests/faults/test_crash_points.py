"""Deaths at crash points of a driver, one after the other, on one pipeline.

Each start but the last dies somewhere else; the survivor has to end with exactly the oracle's rows.
A chain is harder than single crashes: each one meets what the one before left behind. All points
are played in the test's own process, whose Spark is warm (`tests/support/drivers/deaths.py`). Whole
processes are killed at points that the seed draws; with everything asked for, at all of them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.deaths import die_here
from tests.support.drivers.here import finish
from tests.support.drivers.service import run_to_crash
from tests.support.everything import some
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob

TAKE_OVER = ["before_claim", "after_claim", "mid_fence", "after_fence", "after_head_read"]
COMMIT = [
    "after_offset_log",
    "before_begin",
    "mid_produce",
    "before_head",
    "before_commit",
    "after_commit",
    "after_spark_commit",
    "lane_reinit",
]
ELSEWHERE = {
    CrashPoint.COMMIT_UNKNOWN: "tests/faults/test_drivers.py",
    CrashPoint.AFTER_EFFECT: "tests/integration/test_consumer_crash.py",
    CrashPoint.BEFORE_OFFSET_COMMIT: "tests/integration/test_consumer_crash.py",
    CrashPoint.MID_FORK: "tests/integration/test_fork.py",
    CrashPoint.MID_ASK: "tests/integration/test_enrichment.py",
}
"""Not those of a driver that goes on, and where they are played."""
BATCH = 150
"""At a view a second, every batch closes a window: one without rows would show little."""
DEATHS = 4
"""Of a short run, in a process that goes on: each takes some eight seconds of a processor."""
SOME = {"take over": 1, "commit": 1}
"""Of a short run: each start of a process takes some fifteen seconds of a processor."""
JOBS = (ViewsJob, CardsJob)
"""Windows of SQL; state and timers of a processor."""
MAX_ARRIVALS = 2
"""Crash at the first or second batch, so that a chain of all points finds input left."""


@pytest.mark.parametrize("kind", [ViewsJob, pytest.param(CardsJob, marks=pytest.mark.crash)])
def test_a_death_at_every_crash_point_loses_and_repeats_no_record(
    broker: RunningBroker, tmp_path: Path, random: Random, kind: type[ViewsJob | CardsJob]
) -> None:
    points = [*TAKE_OVER, *COMMIT]
    assert {*map(CrashPoint, points), *ELSEWHERE} == {*CrashPoint}
    job = kind(broker.bootstrap_servers, tmp_path)
    job.create_input()
    drawn = some(points, DEATHS, random)
    records = (MAX_ARRIVALS * len(drawn) + 4) * BATCH
    job.produce(random, records, seconds=records)
    file = job.write_file(BATCH)
    for point in drawn:
        arrivals = 1 if point in TAKE_OVER else random.randint(1, MAX_ARRIVALS)
        die_here(file, job, CrashPoint(point), arrivals)
    finish(job, file)


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_no_crash_point_loses_or_repeats_a_record(
    broker: RunningBroker, tmp_path: Path, random: Random
) -> None:
    """SIGKILL of whole processes, with one of two jobs."""
    kind = random.choice(JOBS)
    job = kind(broker.bootstrap_servers, tmp_path)
    job.create_input()
    pipeline = job.write_file()
    points = [
        *some(TAKE_OVER, SOME["take over"], random),
        *some(COMMIT, SOME["commit"], random),
    ]
    random.shuffle(points)
    for number, point in enumerate(points):
        job.produce(random, records=1_500, seconds=150)
        arrivals = 1 if point in TAKE_OVER else random.randint(1, MAX_ARRIVALS)
        run_to_crash(
            tmp_path / f"{number}-{point}",
            pipeline,
            job.bootstrap_servers,
            f"{point}:kill:{arrivals}",
        )
    finish(job, pipeline)

"""A reader that dies between effect and offset commit repeats only what it had not stored."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.consumer_steps import sequenced
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.eventually import eventually
from tests.support.outside.consumer_worker import TAKEN_OVER, Job

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 90
RECORDS = 12
EXPECTED = [f"0/{sequence}" for sequence in range(1, RECORDS + 1)]
STATIC_MEMBER: dict[str, dict[str, Any]] = {
    # A successor of the same name takes over at once, without waiting for the session to end.
    "confluent": {"group.instance.id": "reader"},
    "kafka_python": {"group_instance_id": "reader"},
}
SHORT_SESSION: dict[str, dict[str, Any]] = {
    # The shortest that a broker allows by default.
    "confluent": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
    "kafka_python": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000},
}
BETWEEN = (CrashPoint.AFTER_EFFECT, CrashPoint.BEFORE_OFFSET_COMMIT)

flavours = pytest.mark.parametrize("flavour", sorted(FLAVOURS))
crash_points = pytest.mark.parametrize("point", BETWEEN, ids=[point.value for point in BETWEEN])


@pytest.fixture
def job(broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path, flavour: str) -> Job:
    """Twelve records, some of them written twice, and a program that has not read them yet."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS[flavour])
    name = topic("effects")
    kafka.create_topic(name, 1)
    kafka.write(name, sequenced(*range(1, 8)) + sequenced(*range(4, RECORDS + 1)))
    return Job(
        mode="commit",
        flavour=flavour,
        bootstrap_servers=broker.bootstrap_servers,
        topic=name,
        last=EXPECTED[-1],
        folder=str(tmp_path),
        properties=STATIC_MEMBER[flavour],
    )


@contextmanager
def started(job: Job, crash: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The program, ended for good when the block is left."""
    environment = {**os.environ, PROOF_VARIABLE: str(proof_of(job))}
    if crash:
        environment[ENVIRONMENT_VARIABLE] = crash
    command = [
        sys.executable,
        "-m",
        "tests.support.outside.consumer_worker",
        json.dumps(asdict(job)),
    ]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def run(job: Job, crash: str = "") -> int:
    with started(job, crash) as process:
        return process.wait(RUN_TIMEOUT_S)


def crash_at(job: Job, point: CrashPoint, arrival: int) -> None:
    """Run the program until it kills itself there; fails if it does not."""
    assert run(job, f"{point.value}:kill:{arrival}") == -signal.SIGKILL
    assert proof_of(job).read_text() == point.value


def proof_of(job: Job) -> Path:
    return Path(job.folder) / "proof"


def database_effects(job: Job) -> list[str]:
    with sqlite3.connect(job.database) as database:
        return [value for (value,) in database.execute("SELECT value FROM effect ORDER BY rowid")]


@flavours
@crash_points
def test_only_the_effect_that_was_not_committed_is_repeated(
    job: Job, point: CrashPoint, random: Random
) -> None:
    arrival = random.randint(1, RECORDS)
    crash_at(job, point, arrival)
    assert job.effects.read_text().split() == EXPECTED[:arrival]
    assert run(job) == 0
    assert job.effects.read_text().split() == EXPECTED[:arrival] + EXPECTED[arrival - 1 :]


@flavours
@crash_points
def test_what_is_repeated_is_at_most_the_tail_since_the_last_commit(
    job: Job, point: CrashPoint, random: Random
) -> None:
    job = replace(job, commit_every=4)
    commits = random.randint(1, 2)
    crash_at(job, point, commits + 1)
    assert job.effects.read_text().split() == EXPECTED[: 4 * (commits + 1)]
    assert run(job) == 0
    assert (
        job.effects.read_text().split() == EXPECTED[: 4 * (commits + 1)] + EXPECTED[4 * commits :]
    )


@flavours
@crash_points
def test_nothing_is_repeated_when_the_position_is_stored_with_the_effect(
    job: Job, point: CrashPoint, random: Random
) -> None:
    job = replace(job, mode="database")
    arrival = random.randint(1, RECORDS)
    crash_at(job, point, arrival)
    assert database_effects(job) == EXPECTED[: arrival - 1]
    assert run(job) == 0
    assert database_effects(job) == EXPECTED


@flavours
def test_a_frozen_reader_that_wakes_up_late_changes_nothing(job: Job, random: Random) -> None:
    """Frozen after it read a record and before its transaction, and woken when all is done."""
    job = replace(job, mode="database", properties=SHORT_SESSION[job.flavour])
    arrival = random.randint(1, RECORDS)
    crash = f"{CrashPoint.BEFORE_OFFSET_COMMIT.value}:stop:{arrival}"
    with started(job, crash) as frozen:
        eventually(proof_of(job).exists)
        assert run(job) == 0
        assert database_effects(job) == EXPECTED
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(RUN_TIMEOUT_S) == TAKEN_OVER
    assert database_effects(job) == EXPECTED

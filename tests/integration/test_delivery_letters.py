"""`onceflow dead-letter` of deliveries: a rejected record reaches the target once, when it can."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RUN_TIMEOUT_S, Job
from tests.support.outside.history import read_topic
from tests.support.outside.topics import ordered_producer
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver
from tests.support.stores import PostgresStore

REFUSED = 11
"""Records of each partition that the table refuses at first."""
POINTS = (
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.AFTER_COMMIT,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def job(
    broker: RunningBroker, server: Postgres, topic: Callable[[str], str], tmp_path: Path
) -> Job:
    """A delivery that has rejected some records of each partition."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    job = Job(kafka, tmp_path, topic("views"), store=PostgresStore(server))
    job.set_up(FILE + "dead_letter: {{topic: " + letters_of(job) + "}}\n")
    change_table(job, "ADD CONSTRAINT small CHECK (n < 1000)")
    for partition in range(2):
        job.write(950, 999 + REFUSED, partition)
    job.deliver()
    assert job.store.content().total() == 2 * 50
    return job


def letters_of(job: Job) -> str:
    return f"{job.topic}-dead"


def change_table(job: Job, change: str) -> None:
    store = job.store
    assert isinstance(store, PostgresStore)
    with psycopg.connect(store.server.dsn) as connection:
        table = Identifier(store.table)
        connection.execute(SQL("ALTER TABLE {} {}").format(table, SQL(change)))


def command(job: Job, name: str, crash: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "onceflow.cli", "dead-letter", name, str(job.file)]
    line += ["--bootstrap-servers", job.kafka.bootstrap_servers, "--output", "json"]
    environment = {**job.environment, "PATH": "", PROOF_VARIABLE: str(job.proof)}
    if crash:
        environment[ENVIRONMENT_VARIABLE] = crash
    return subprocess.run(
        line,
        cwd=job.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def replay(job: Job) -> dict[str, Any]:
    done = command(job, "replay")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_letters_are_listed_and_delivered_once_when_the_target_takes_them(job: Job) -> None:
    listed = [json.loads(line) for line in command(job, "list").stdout.splitlines()]
    assert {each["reason"] for each in listed} == {"refused_by_target"}
    assert len(listed) == 2 * REFUSED
    # As long as the table refuses them, they stay letters, as new ones.
    assert replay(job) == {"sent": 0, "kept": 2 * REFUSED}
    assert len(read_topic(job.kafka.bootstrap_servers, letters_of(job))) == 4 * REFUSED
    change_table(job, "DROP CONSTRAINT small")
    write_a_letter_again(job)
    assert replay(job) == {"sent": 2 * REFUSED, "kept": 0}
    job.assert_equal()
    assert replay(job) == {"sent": 0, "kept": 0}
    # And the delivery itself goes on where it was.
    job.write(1011, 1020)
    job.deliver()
    job.assert_equal()


def write_a_letter_again(job: Job) -> None:
    """As a delivery does that is killed between the letters of a batch and the batch."""
    letter = read_topic(job.kafka.bootstrap_servers, letters_of(job))[-1]
    producer = ordered_producer(job.kafka.bootstrap_servers)
    producer.produce(
        letters_of(job),
        letter.value,
        letter.key,
        partition=letter.partition,
        headers=[*letter.headers],
    )
    assert producer.flush(30) == 0


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_is_killed_goes_on_and_repeats_nothing(job: Job, point: CrashPoint) -> None:
    change_table(job, "DROP CONSTRAINT small")
    assert command(job, "replay", f"{point.value}:kill:1").returncode == -signal.SIGKILL
    assert job.proof.read_text() == point.value
    replay(job)
    job.assert_equal()
    assert replay(job) == {"sent": 0, "kept": 0}


@pytest.fixture(scope="module")
def shop() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def test_a_receiver_gets_letters_under_keys_of_their_own(job: Job, shop: Receiver) -> None:
    """The receiver may have kept its refusal under the key of the record."""
    shop.obey(Rule(times=ALWAYS, status=422))
    to = f'http: {{url: "{shop.url}", idempotency: {{lifetime: 1 hour}}}}'
    text = FILE.replace("name: {name}", "name: {name}-sent")
    letters = "dead_letter: {{topic: " + letters_of(job) + "-sent}}\n"
    job.write_file(text + letters, to)
    job.deliver()
    refused = {seen.key for seen in shop.requests()}
    assert len(refused) == job.written.total()
    shop.obey()
    assert replay(job) == {"sent": len(refused), "kept": 0}
    keys = [seen.key for seen in shop.requests()]
    assert len({*keys} - refused) == len(refused)
    assert replay(job) == {"sent": 0, "kept": 0}
    assert [seen.key for seen in shop.requests()] == keys


def test_what_cannot_be_delivered_late_is_refused_in_one_sentence(job: Job) -> None:
    letters = "dead_letter: {{topic: " + letters_of(job) + "}}\n"
    brokers = job.kafka.bootstrap_servers
    job.write_file(FILE + letters, f'kafka: {{bootstrap_servers: "{brokers}", topic: copies}}')
    done = command(job, "replay")
    assert done.returncode == 2
    assert "cannot be delivered later" in done.stderr
    assert "partition: same" in done.stderr
    job.write_file(FILE)
    assert "has no dead-letter topic" in command(job, "replay").stderr

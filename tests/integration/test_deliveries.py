"""Deliveries from end to end: `onceflow run` on a real broker, to each kind of store.

The store equals the topic to the row, whatever is killed, frozen or down on the way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RECORDS, RUN_TIMEOUT_S, Job, Store
from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import PARTITIONS, any_arrival
from tests.support.sites.object_store import ObjectStore, running_store
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.stores import DeltaStore, PostgresStore

IN_STORE = pytest.param("delta-s3", marks=pytest.mark.long)
"""The object store is built by Go."""
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)
KILLS = [
    *(("postgres", point) for point in POINTS),
    *(("delta", point) for point in (*POINTS, CrashPoint.COMMIT_UNKNOWN)),
    pytest.param("delta-s3", CrashPoint.AFTER_EFFECT, marks=pytest.mark.long),
    pytest.param("delta-s3", CrashPoint.COMMIT_UNKNOWN, marks=pytest.mark.long),
]
FREEZES = [
    # After it read, in mid-copy, and in a transaction that holds the lock.
    ("postgres", CrashPoint.BEFORE_BEGIN),
    ("postgres", CrashPoint.MID_PRODUCE),
    ("postgres", CrashPoint.AFTER_EFFECT),
    # After it read, after the files and before the commit.
    ("delta", CrashPoint.BEFORE_BEGIN),
    ("delta", CrashPoint.MID_PRODUCE),
    ("delta", CrashPoint.BEFORE_COMMIT),
    pytest.param("delta-s3", CrashPoint.BEFORE_COMMIT, marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with running_store(tmp_path_factory.mktemp("store")) as objects:
        yield objects


@pytest.fixture
def job(
    broker: RunningBroker,
    topic: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Job:
    """A job with the store of the test's parameter."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Job(kafka, tmp_path, topic("views"), store=_store(request))


def _store(request: pytest.FixtureRequest) -> Store:
    match request.param:
        case "postgres":
            return PostgresStore(request.getfixturevalue("server"))
        case "delta":
            return DeltaStore()
        case "delta-s3":
            return DeltaStore(request.getfixturevalue("objects"))
    raise AssertionError(request.param)


@pytest.mark.parametrize("job", ["postgres", "delta", IN_STORE], indirect=True)
def test_the_store_equals_the_topic_and_repeats_are_not_written(job: Job) -> None:
    job.set_up()
    job.write_much(RECORDS)
    job.deliver()
    job.assert_equal()
    first, *batches = job.events()
    assert first["event"] == "delivering"
    assert first["guarantee"] == f"exactly once {job.store.scope}"
    assert sum(each.get("records", 0) for each in batches) == PARTITIONS * RECORDS
    assert max(each.get("records", 0) for each in batches) <= 40
    job.write(RECORDS + 1, RECORDS + 50)
    job.deliver()
    job.assert_equal()


@pytest.mark.parametrize("job", ["postgres"], indirect=True)
def test_a_drain_delivers_what_is_there_if_there_is_time(job: Job) -> None:
    job.set_up(FILE + "rate: {{records_per_second: 200}}\non_stop: {{drain: 60 s}}\n")
    job.write_much(RECORDS)
    with job.running() as process:
        eventually(lambda: job.events()[1:], timeout_s=RUN_TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    assert job.events()[-1]["event"] == "caught_up"
    job.assert_equal()

    job.write_file(FILE + "rate: {{records_per_second: 20}}\non_stop: {{drain: 1 s}}\n")
    job.write(RECORDS + 1, 2 * RECORDS)
    with job.running(name="short") as process:
        eventually(lambda: job.events("short")[1:], timeout_s=RUN_TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    assert job.events("short")[-1]["event"] == "drained"
    assert job.store.content() < job.written
    job.write_file(FILE)
    job.deliver()
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize(("job", "point"), KILLS, indirect=["job"])
def test_a_kill_at_each_point_loses_and_repeats_no_row(
    job: Job, point: CrashPoint, random: Random
) -> None:
    job.set_up()
    job.write_much(RECORDS)
    job.die(point, any_arrival(point, random))
    job.write(RECORDS + 1, RECORDS + 50)
    job.deliver()
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize(("job", "point"), FREEZES, indirect=["job"])
def test_a_frozen_instance_that_wakes_up_late_writes_nothing_twice(
    job: Job, point: CrashPoint, random: Random
) -> None:
    job.set_up()
    job.write_much(RECORDS)
    with job.frozen(point, random.randint(1, 8)):
        job.deliver()
        job.assert_equal()
    assert job.events("frozen")[-1]["event"] == "caught_up"
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize("job", ["postgres", "delta"], indirect=True)
def test_two_instances_share_the_partitions_and_one_goes_on_alone(job: Job) -> None:
    job.set_up()
    with job.running(name="one") as one, job.running(name="two") as two:

        def settle() -> None:
            eventually(job.store.content, lambda rows: rows == job.written, timeout_s=RUN_TIMEOUT_S)

        last = job.write_until_all_deliver("one", "two", settle=settle)
        one.kill()
        before = job.delivered("two")
        for partition in range(PARTITIONS):
            job.write(last + 1, last + 100, partition)
        settle()
        assert job.delivered("two") - before == PARTITIONS * 100
        two.send_signal(signal.SIGTERM)
        assert two.wait(RUN_TIMEOUT_S) == 0
        assert job.events("two")[-1]["event"] == "drained"
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize("job", ["postgres", IN_STORE], indirect=True)
def test_a_store_that_is_down_for_a_while_delays_and_loses_nothing(job: Job) -> None:
    job.set_up()
    job.write(1, RECORDS)
    with job.running() as process:
        content = job.store.content
        eventually(lambda: sum(content().values()) == RECORDS, timeout_s=RUN_TIMEOUT_S)
        with job.store.away():
            job.write(RECORDS + 1, 2 * RECORDS)
            eventually(lambda: len(job.waits) >= 2, timeout_s=RUN_TIMEOUT_S)
        eventually(content, lambda rows: rows == job.written, timeout_s=RUN_TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    assert [each["level"] for each in job.waits[:1]] == ["warning"]
    assert "resumed" in [each["event"] for each in job.events()]
    assert job.events()[-1]["event"] == "drained"
    job.assert_equal()

"""Where a delivery begins, and how a backlog is skipped: on a real broker, into a real store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onceflow.clock import SystemClock
from onceflow.crashpoints import ENVIRONMENT_VARIABLE, CrashPoint
from onceflow.errors import ConfigError
from onceflow.protocol.dead_letter import DeadLetter
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RUN_TIMEOUT_S, Job
from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import PARTITIONS, page_of
from tests.support.outside.history import read_topic
from tests.support.outside.topics import add_partitions
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.stores import PostgresStore

LATEST = FILE.replace("takeover_after", "starting: latest\n  takeover_after")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def kafka(broker: RunningBroker) -> RealConsumerKafka:
    return RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])


@pytest.fixture
def job(
    kafka: RealConsumerKafka, server: Postgres, topic: Callable[[str], str], tmp_path: Path
) -> Job:
    return Job(kafka, tmp_path, topic("views"), store=PostgresStore(server))


def write(job: Job, first: int, last: int) -> None:
    for partition in range(PARTITIONS):
        job.write(first, last, partition)


def between(ranges: Mapping[int, list[range]]) -> Counter[tuple[int, str]]:
    """The rows of these numbers in each partition."""
    return Counter(
        (n, page_of(n, partition))
        for partition, several in ranges.items()
        for numbers in several
        for n in numbers
    )


# --- where it begins --------------------------------------------------------------------------


def test_a_delivery_that_begins_at_the_end_delivers_what_comes_then(job: Job) -> None:
    job.set_up(LATEST)
    write(job, 1, 100)
    job.deliver()
    assert job.store.content() == Counter()
    write(job, 101, 150)
    job.deliver()
    rows = between({n: [range(101, 151)] for n in range(PARTITIONS)})
    assert job.store.content() == rows
    # A partition that is added later has nothing from before the beginning.
    add_partitions(job.kafka.bootstrap_servers, job.topic, PARTITIONS + 1)
    job.write(1, 50, PARTITIONS)
    job.deliver()
    assert job.store.content() == rows + between({PARTITIONS: [range(1, 51)]})


def test_a_delivery_may_begin_at_a_time(job: Job) -> None:
    job.set_up()
    write(job, 1, 100)
    written_ms = SystemClock().unix_ms()
    eventually(lambda: SystemClock().unix_ms() > written_ms + 2)
    instant = datetime.fromtimestamp((written_ms + 1) / 1000, UTC).isoformat()
    job.write_file(FILE.replace("takeover", f"starting: {{{{timestamp: {instant}}}}}\n  takeover"))
    write(job, 101, 150)
    job.deliver()
    assert job.store.content() == between({n: [range(101, 151)] for n in range(PARTITIONS)})


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "arrival", "decided"),
    [
        (CrashPoint.BEFORE_COMMIT, 1, ()),
        (CrashPoint.AFTER_COMMIT, 1, (1,)),
        (CrashPoint.AFTER_COMMIT, 2, (1, 0)),
    ],
)
def test_a_kill_cannot_move_a_beginning_that_was_kept(
    job: Job, point: CrashPoint, arrival: int, decided: tuple[int, ...]
) -> None:
    """A partition begins where its log ended when its position was written: before or after."""
    job.set_up(LATEST)
    write(job, 1, 100)
    job.die(point, arrival)
    write(job, 101, 120)
    job.deliver()
    write(job, 121, 130)
    job.deliver()
    first = {n: 101 if n in decided else 121 for n in range(PARTITIONS)}
    expected = between({n: [range(start, 131)] for n, start in first.items()})
    assert job.store.content() == expected


# --- to skip a backlog ------------------------------------------------------------------------


@pytest.fixture
def behind(job: Job) -> Job:
    """A delivery that has carried 100 records of each partition, and lacks 100 more."""
    job.set_up(FILE + f"dead_letter: {{{{topic: {job.topic}-rejected}}}}\n")
    write(job, 1, 100)
    job.deliver()
    write(job, 101, 200)
    return job


def skip(job: Job, *options: str, crash: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onceflow.cli", "skip", str(job.file), *options]
    command += ["--bootstrap-servers", job.kafka.bootstrap_servers]
    environment = {**job.environment, **({ENVIRONMENT_VARIABLE: crash} if crash else {})}
    return subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )


def gaps(job: Job) -> list[tuple[int, int, str]]:
    """Partition and count of records of each gap record, and why."""
    found = []
    for record in read_topic(job.kafka.bootstrap_servers, f"{job.topic}-rejected"):
        letter = DeadLetter.from_record(record.key, record.value, record.headers)
        gap = json.loads(letter.value or b"")
        found.append((gap["partition"], gap["records"], letter.reason))
    return sorted(found)


def test_a_backlog_is_skipped_and_a_gap_record_names_it(behind: Job) -> None:
    shown = skip(behind, "--to", "latest")
    assert "add `--yes`" in shown.stdout
    done = skip(behind, "--to", "latest", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("skipped 100 records") == PARTITIONS
    assert gaps(behind) == [(0, 100, "skipped"), (1, 100, "skipped")]
    # The filter knows what was skipped: a repeat of it is one, and nothing is missing.
    write(behind, 190, 250)
    behind.deliver()
    expected = {n: [range(1, 101), range(201, 251)] for n in range(PARTITIONS)}
    assert behind.store.content() == between(expected)
    assert skip(behind, "--to", "latest", "--yes").stdout == "nothing to skip\n"


def test_a_skip_may_go_to_a_record_of_one_partition(behind: Job) -> None:
    # The first hundred and their repeats are 125 records.
    done = skip(behind, "--to", f"{behind.topic}[1]@155", "--yes")
    assert done.stdout == f"{behind.topic}[1]: skipped 30 records, to 155\n", done.stderr
    behind.deliver()
    expected = {0: [range(1, 201)], 1: [range(1, 101), range(131, 201)]}
    assert behind.store.content() == between(expected)


def test_nothing_is_skipped_where_it_cannot_be(behind: Job) -> None:
    """To another place, without a topic for gap records, or while it runs."""
    for to, message in (
        (f"{behind.topic}[0]@3", "a skip goes forward"),
        (f"{behind.topic}[0]@9999", "an offset from 125 to 250"),
        (f"{behind.topic}[7]@1", "not a partition of this delivery"),
        ("tomorrow", "not a place to skip to"),
        ("2026-11-01T00:00:00", "not a place to skip to"),
    ):
        refused = skip(behind, "--to", to, "--yes")
        assert refused.returncode == ConfigError.exit_code
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr
    behind.write_file(FILE)
    assert "no topic is named for gap records" in skip(behind, "--to", "latest", "--yes").stderr
    behind.write_file(FILE + f"dead_letter: {{{{topic: {behind.topic}-rejected}}}}\n")
    with behind.running() as process:
        eventually(lambda: behind.delivered("out") == PARTITIONS * 100, timeout_s=RUN_TIMEOUT_S)
        refused = skip(behind, "--to", "latest", "--yes")
        assert refused.returncode == ConfigError.exit_code
        assert "instances of the delivery run" in refused.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0


@pytest.mark.crash
def test_a_skip_that_is_killed_leaves_out_nothing_silently(behind: Job) -> None:
    """The gap record is there before the position moves."""
    killed = skip(behind, "--to", "latest", "--yes", crash="before_commit:kill:1")
    assert killed.returncode == -signal.SIGKILL
    assert len(gaps(behind)) == 1
    behind.deliver()
    assert behind.store.content() == behind.written


@pytest.mark.crash
def test_an_instance_that_slept_through_a_skip_writes_nothing_of_it(behind: Job) -> None:
    with behind.frozen(CrashPoint.MID_PRODUCE, 1):
        done = eventually(
            lambda: skip(behind, "--to", "latest", "--yes"),
            lambda found: found.returncode == 0,
            timeout_s=RUN_TIMEOUT_S,
        )
        assert "skipped" in done.stdout
    assert behind.store.content() == between({n: [range(1, 101)] for n in range(PARTITIONS)})

"""A delivery to PostgreSQL from end to end: `onceflow run` on a real broker and a real server.

The table equals the topic to the row, whatever is killed, frozen, cut or down on the way. Rows are
appended to a table without a key, so that a row that is written twice shows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint
from onceflow.errors import ConfigError, RecordError
from onceflow.protocol.dead_letter import DeadLetter
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.consumer_steps import Written, sequenced
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.sites.cut_proxy import cut_proxy
from tests.support.sites.postgres import Postgres, running_postgres

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 120
RECORDS = 300
PARTITIONS = 2
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: {name}
from:
  topics: [{topic}]
  schema: "n BIGINT NOT NULL, page STRING"
  takeover_after: 3 seconds
to:
  postgres: {{dsn_file: dsn, table: {table}, mode: append}}
batch: {{max_records: 40, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms}}
"""
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@dataclass
class Job:
    """A topic, a table, and a delivery from one to the other."""

    kafka: RealConsumerKafka
    server: Postgres
    folder: Path
    topic: str
    written: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.topic[-20:].strip("-_").replace("_", "-")

    @property
    def table(self) -> str:
        return self.name.replace("-", "_")

    @property
    def file(self) -> Path:
        return self.folder / "delivery.yaml"

    @property
    def proof(self) -> Path:
        return self.folder / "proof"

    def set_up(self, text: str = FILE, table: str = "n int8, page text") -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.write_file(text)
        (self.folder / "dsn").write_text(self.server.dsn)
        with psycopg.connect(self.server.dsn) as connection:
            statement = SQL("CREATE TABLE {} ({})")
            columns = SQL(table)
            connection.execute(statement.format(Identifier(self.table), columns))

    def write_file(self, text: str) -> None:
        self.file.write_text(text.format(name=f"d-{self.name}", topic=self.topic, table=self.table))

    def write(self, first: int, last: int, partition: int = 0) -> None:
        """Records with these sequences, the last of them twice."""
        numbers = range(first, last + 1)
        records = views(numbers, partition)
        self.kafka.write(self.topic, records)
        self.kafka.write(self.topic, records[-25:])
        self.written.update((n, page_of(n, partition)) for n in numbers)

    def write_much(self) -> None:
        """In every partition, with an aborted transaction at the end of the topic."""
        for partition in range(PARTITIONS):
            self.write(1, RECORDS, partition)
        self.kafka.write_aborted(self.topic, views(range(9000, 9010), 0))

    def rows(self) -> Counter[tuple[int, str]]:
        with psycopg.connect(self.server.dsn) as connection:
            statement = SQL("SELECT n, page FROM {}").format(Identifier(self.table))
            return Counter(connection.execute(statement).fetchall())

    @contextmanager
    def running(self, *options: str, crash: str = "", name: str = "out") -> Iterator[Any]:
        """`onceflow run`, ended for good when the block is left."""
        environment = {**os.environ, PROOF_VARIABLE: str(self.proof)}
        if crash:
            environment[ENVIRONMENT_VARIABLE] = crash
        command = [sys.executable, "-m", "onceflow.cli", "run", str(self.file), *options]
        command += ["--bootstrap-servers", self.kafka.bootstrap_servers]
        with (
            (self.folder / name).open("wb") as output,
            (self.folder / f"{name}.err").open("wb") as errors,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=output, stderr=errors
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def run(self, crash: str = "") -> int:
        with self.running("--until", "caught-up", crash=crash) as process:
            code: int = process.wait(RUN_TIMEOUT_S)
        return code

    def deliver(self) -> None:
        assert self.run() == 0, self.errors
        assert self.events()[-1]["event"] == "caught_up"

    def events(self, name: str = "out") -> list[dict[str, Any]]:
        found = []
        for line in (self.folder / name).read_text().splitlines():
            with suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    @property
    def errors(self) -> str:
        return (self.folder / "out.err").read_text()

    def assert_equal(self) -> None:
        assert self.rows() == self.written


def page_of(number: int, partition: int) -> str:
    return f"{partition}/{number}"


def views(numbers: Sequence[int], partition: int) -> list[Written]:
    return [
        replace(each, value=json.dumps({"n": n, "page": page_of(n, partition)}).encode())
        for n, each in zip(
            numbers,
            sequenced(*numbers, partition=partition, tag=1 + partition),
            strict=True,
        )
    ]


@pytest.fixture
def job(
    broker: RunningBroker, server: Postgres, topic: Callable[[str], str], tmp_path: Path
) -> Job:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Job(kafka, server, tmp_path, topic("views"))


def test_the_table_equals_the_topic_and_repeats_are_not_written(job: Job) -> None:
    job.set_up()
    job.write_much()
    job.deliver()
    job.assert_equal()
    first, *batches = job.events()
    assert first["event"] == "delivering"
    assert first["guarantee"] == f"exactly once from the topic to the table {job.table}"
    assert sum(each.get("records", 0) for each in batches) == PARTITIONS * RECORDS
    assert max(each.get("records", 0) for each in batches) <= 40
    job.write(RECORDS + 1, RECORDS + 50)
    job.deliver()
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_and_repeats_no_row(
    job: Job, point: CrashPoint, random: Random
) -> None:
    job.set_up()
    job.write_much()
    is_claim = point in {CrashPoint.BEFORE_CLAIM, CrashPoint.AFTER_CLAIM}
    arrival = random.randint(1, PARTITIONS if is_claim else 8)
    assert job.run(f"{point.value}:kill:{arrival}") == -signal.SIGKILL
    assert job.proof.read_text() == point.value
    job.write(RECORDS + 1, RECORDS + 50)
    job.deliver()
    job.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [CrashPoint.BEFORE_BEGIN, CrashPoint.MID_PRODUCE, CrashPoint.AFTER_EFFECT],
    ids=lambda point: point.value,
)
def test_a_frozen_instance_that_wakes_up_late_writes_nothing_twice(
    job: Job, point: CrashPoint, random: Random
) -> None:
    """Frozen after it read, in mid-copy, and in a transaction that holds the lock."""
    job.set_up()
    job.write_much()
    crash = f"{point.value}:stop:{random.randint(1, 8)}"
    with job.running("--until", "caught-up", crash=crash, name="frozen") as frozen:
        eventually(job.proof.exists, timeout_s=RUN_TIMEOUT_S)
        job.deliver()
        job.assert_equal()
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(RUN_TIMEOUT_S) == 0
    assert job.events("frozen")[-1]["event"] == "caught_up"
    job.assert_equal()


@pytest.mark.crash
def test_two_instances_share_the_partitions_and_one_goes_on_alone(job: Job) -> None:
    job.set_up()
    with job.running(name="one") as one, job.running(name="two") as two:
        for end in (100, 200, 300):
            for partition in range(PARTITIONS):
                job.write(end - 99, end, partition)
        eventually(job.rows, lambda rows: rows == job.written, timeout_s=RUN_TIMEOUT_S)
        one.kill()
        for partition in range(PARTITIONS):
            job.write(301, 400, partition)
        eventually(job.rows, lambda rows: rows == job.written, timeout_s=RUN_TIMEOUT_S)
        two.send_signal(signal.SIGTERM)
        assert two.wait(RUN_TIMEOUT_S) == 0
        assert job.events("two")[-1]["event"] == "drained"
    job.assert_equal()


@pytest.mark.crash
def test_a_server_that_is_down_for_a_while_delays_and_loses_nothing(
    job: Job, tmp_path: Path
) -> None:
    with running_postgres() as server:
        job.server = server
        job.set_up()
        job.write(1, RECORDS)
        with job.running() as process:
            eventually(lambda: sum(job.rows().values()) == RECORDS, timeout_s=RUN_TIMEOUT_S)
            server.stop()
            job.write(RECORDS + 1, 2 * RECORDS)
            eventually(lambda: len(waits(job)) >= 3, timeout_s=RUN_TIMEOUT_S)
            server.start()
            eventually(job.rows, lambda rows: rows == job.written, timeout_s=RUN_TIMEOUT_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(RUN_TIMEOUT_S) == 0
        assert [each["level"] for each in waits(job)[:1]] == ["warning"]
        assert "resumed" in [each["event"] for each in job.events()]
        assert job.events()[-1]["event"] == "drained"
        job.assert_equal()


def waits(job: Job) -> list[dict[str, Any]]:
    return [each for each in job.events() if each["event"] == "waiting"]


@pytest.mark.parametrize(
    ("marks", "is_answered"),
    [
        ((b"FOR UPDATE",), False),
        ((b"CONSTRAINTS",), True),
        ((b"CONSTRAINTS", b"COMMIT"), False),
        ((b"CONSTRAINTS", b"COMMIT"), True),
    ],
    ids=["before the rows", "in mid-transaction", "commit lost", "answer lost"],
)
def test_a_connection_that_is_cut_neither_loses_nor_repeats_a_row(
    job: Job, marks: tuple[bytes, ...], is_answered: bool
) -> None:
    job.set_up()
    job.write_much()
    with cut_proxy(job.server.port) as proxy:
        (job.folder / "dsn").write_text(job.server.dsn_at(proxy.port))
        proxy.arm(*marks, is_answered=is_answered)
        job.deliver()
        assert proxy.cuts == 1
    assert len(waits(job)) >= 1
    job.assert_equal()


def test_records_that_the_table_refuses_go_to_the_dead_letters(job: Job) -> None:
    letters = f"{job.topic}-rejected"
    job.set_up(
        FILE + f"dead_letter: {{{{topic: {letters}}}}}\n",
        table="n int8 CHECK (n % 100 <> 50), page text",
    )
    job.write(1, RECORDS)
    unreadable = replace(views([RECORDS + 1], 0)[0], value=b"no JSON")
    job.kafka.write(job.topic, [unreadable])
    job.deliver()
    refused = {50, 150, 250}
    assert job.rows() == Counter({row: 1 for row in job.written if row[0] not in refused})
    found = [
        DeadLetter.from_record(record.key, record.value, record.headers)
        for record in read_topic(job.kafka.bootstrap_servers, letters)
    ]
    assert [each.reason for each in found] == ["refused_by_target"] * 3 + ["undecodable"]
    assert {json.loads(each.value or b"")["n"] for each in found[:3]} == refused
    assert all(each.text.startswith("23514 ") for each in found[:3])


def test_a_refused_record_stops_a_delivery_without_dead_letters(job: Job) -> None:
    job.set_up(table="n int8 CHECK (n < 100), page text")
    job.write(1, 120)
    assert job.run() == RecordError.exit_code
    assert "a record was rejected" in job.errors
    assert f"{job.topic}[0]@99" in job.errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("table: {table}", "table: nowhere"), "the table does not exist"),
        (FILE.replace("[{topic}]", "[nowhere]"), "topics do not exist: nowhere"),
        (FILE.replace("page STRING", "page INT"), "page: the column has the type text"),
    ],
)
def test_what_does_not_exist_or_fit_is_one_sentence(job: Job, text: str, message: str) -> None:
    job.set_up()
    job.write_file(text)
    assert job.run() == ConfigError.exit_code
    assert message in job.errors
    assert "Traceback" not in job.errors

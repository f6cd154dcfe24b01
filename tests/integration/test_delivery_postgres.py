"""A delivery to PostgreSQL from end to end: what only this target has. See also test_deliveries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onceflow.errors import ConfigError, RecordError
from onceflow.protocol.dead_letter import DeadLetter
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RECORDS, Job
from tests.support.jobs.delivery_process import numbered
from tests.support.outside.history import read_topic
from tests.support.sites.cut_proxy import cut_proxy
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.stores import PostgresStore

NOWHERE = "postgres: {{dsn_file: dsn, table: nowhere, mode: append}}"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def store(server: Postgres) -> PostgresStore:
    return PostgresStore(server)


@pytest.fixture
def job(
    broker: RunningBroker, store: PostgresStore, topic: Callable[[str], str], tmp_path: Path
) -> Job:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Job(kafka, tmp_path, topic("views"), store=store)


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
    job: Job, server: Postgres, marks: tuple[bytes, ...], is_answered: bool
) -> None:
    job.set_up()
    job.write_much(RECORDS)
    with cut_proxy(server.port) as proxy:
        (job.folder / "dsn").write_text(server.dsn_at(proxy.port))
        proxy.arm(*marks, is_answered=is_answered)
        job.deliver()
        assert proxy.cuts == 1
    assert len(job.waits) >= 1
    job.assert_equal()


def test_records_that_the_table_refuses_go_to_the_dead_letters(
    job: Job, store: PostgresStore
) -> None:
    letters = f"{job.topic}-rejected"
    store.columns = "n int8 CHECK (n % 100 <> 50), page text"
    job.set_up(FILE + f"dead_letter: {{{{topic: {letters}}}}}\n")
    job.write(1, RECORDS)
    unreadable = replace(numbered([RECORDS + 1], 0)[0], value=b"no JSON")
    job.kafka.write(job.topic, [unreadable])
    job.deliver()
    refused = {50, 150, 250}
    assert store.content() == Counter({row: 1 for row in job.written if row[0] not in refused})
    found = [
        DeadLetter.from_record(record.key, record.value, record.headers)
        for record in read_topic(job.kafka.bootstrap_servers, letters)
    ]
    assert [each.reason for each in found] == ["refused_by_target"] * 3 + ["undecodable"]
    assert {json.loads(each.value or b"")["n"] for each in found[:3]} == refused
    assert all(each.text.startswith("23514 ") for each in found[:3])


def test_a_refused_record_stops_a_delivery_without_dead_letters(
    job: Job, store: PostgresStore
) -> None:
    store.columns = "n int8 CHECK (n < 100), page text"
    job.set_up()
    job.write(1, 120)
    assert job.run() == RecordError.exit_code
    assert "the target refuses a record" in job.errors
    assert f"{job.topic}[0]@99" in job.errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("{to}", NOWHERE), "the table does not exist"),
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

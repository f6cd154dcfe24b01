"""A delivery to Delta Lake from end to end: what only this target has. See also test_deliveries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from onceflow.errors import ConfigError
from onceflow.protocol.dead_letter import DeadLetter
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RECORDS, Job
from tests.support.jobs.delivery_process import numbered
from tests.support.outside.history import read_topic
from tests.support.stores import DeltaStore

NESTED = FILE.replace("page STRING", "page STRING, parts ARRAY<STRUCT<n: INT, at: DATE>>")


@pytest.fixture
def store() -> DeltaStore:
    return DeltaStore()


@pytest.fixture
def job(
    broker: RunningBroker, store: DeltaStore, topic: Callable[[str], str], tmp_path: Path
) -> Job:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Job(kafka, tmp_path, topic("views"), store=store)


def test_records_that_the_table_refuses_go_to_the_dead_letters(job: Job, store: DeltaStore) -> None:
    """Only the target looks into arrays; the reader of records takes any."""
    letters = f"{job.topic}-rejected"
    job.set_up(NESTED + f"dead_letter: {{{{topic: {letters}}}}}\n")
    parts = {50: [{"n": "x"}], 150: ["x"], 250: [{"at": "yesterday"}]}
    good = [{"n": 1, "at": "2024-02-29"}, None]
    job.kafka.write(
        job.topic,
        [
            replace(
                each,
                value=json.dumps({"n": n, "page": str(n), "parts": parts.get(n, good)}).encode(),
            )
            for n, each in enumerate(numbered(range(1, RECORDS + 1), 0), start=1)
        ],
    )
    job.deliver()
    expected = Counter((n, str(n)) for n in range(1, RECORDS + 1) if n not in parts)
    assert store.content() == expected
    assert store.place is not None
    [written] = {repr(each) for (each,) in store.place.rows("parts")}
    assert written == "[{'n': 1, 'at': datetime.date(2024, 2, 29)}, None]"
    found = [
        DeadLetter.from_record(record.key, record.value, record.headers)
        for record in read_topic(job.kafka.bootstrap_servers, letters)
    ]
    assert [each.reason for each in found] == ["refused_by_target"] * 3
    assert {json.loads(each.value or b"")["n"] for each in found} == {*parts}
    assert all(each.text.startswith("parts: ") for each in found)


def test_records_in_another_format_are_delivered(job: Job, store: DeltaStore) -> None:
    letters = f"{job.topic}-rejected"
    text = FILE.replace("takeover_after", "format: csv\n  takeover_after")
    job.set_up(text + f"dead_letter: {{{{topic: {letters}}}}}\n")
    job.kafka.write(
        job.topic,
        [
            replace(each, value=b"no number," if n == 7 else b'%d,"page, %d"' % (n, n))
            for n, each in enumerate(numbered(range(1, RECORDS + 1), 0), start=1)
        ],
    )
    job.deliver()
    assert store.content() == Counter((n, f"page, {n}") for n in range(1, RECORDS + 1) if n != 7)
    [letter] = read_topic(job.kafka.bootstrap_servers, letters)
    assert letter.value == b"no number,"


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("delta: {path: nowhere, create: false}", "the table does not exist"),
        ("delta: {path: there}", "page: the column has the type integer; expected string"),
        ("delta: {path: there, mode: upsert}", "`upsert` is not yet supported"),
        ("delta: {path: t, partition_by: [day]}", "`day` is not in `schema`"),
        ("delta: {path: 'gs://b/t'}", "not the place of a table"),
        ("delta: {path: t, storage: {region: x}}", "a folder has no store"),
        ("delta: {path: 's3://b/t', storage: {endpoint: 'http://x'}}", "not encrypted"),
        ("delta: {path: delivery.yaml}", "the table cannot be written"),
    ],
)
def test_what_does_not_exist_or_fit_is_one_sentence(job: Job, to: str, message: str) -> None:
    job.set_up()
    schema = pa.schema([("n", pa.int64()), ("page", pa.int32())])
    DeltaTable.create(str(job.folder / "there"), Schema.from_arrow(schema))
    job.write_file(FILE, to)
    assert job.run() == ConfigError.exit_code
    assert message in job.errors
    assert "Traceback" not in job.errors

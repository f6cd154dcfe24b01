"""Deliveries that are served, and seen from outside: `serve`, `status` and `why-stuck`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.deliveries import FILE, RECORDS, RUN_TIMEOUT_S, Job
from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import PARTITIONS
from tests.support.jobs.delivery_watched import asked, causes, metrics_of, served
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.stores import PostgresStore


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


def test_a_delivery_is_served_and_seen_from_outside(job: Job, store: PostgresStore) -> None:
    job.set_up()
    job.write_much(RECORDS)
    before = asked(job, "status")
    assert (before["target"], before["instances"]) == ("well", 0)
    # 25 records of each partition were written again.
    assert before["lag"] >= PARTITIONS * (RECORDS + 25)
    assert causes(job)[0] == "not running"
    with store.away():
        assert causes(job) == ["target down", "not running"]
        down = asked(job, "status")
        assert "PostgreSQL" in down["target"]
        assert (down["lag"], down["topics"]) == (None, [])
    with served(job, job.folder) as (process, address):
        eventually(
            lambda: metrics_of(address).get("records_total") == PARTITIONS * RECORDS,
            timeout_s=RUN_TIMEOUT_S,
        )
        job.assert_equal()
        seen = metrics_of(address)
        assert (seen["target_up"], seen["state running"], seen["desired_running"]) == (1, 1, 1)
        # The last of them come after the last record that is new.
        repeats = PARTITIONS * 25
        eventually(lambda: metrics_of(address).get("repeats_total") == repeats, timeout_s=60)
        assert httpx.get(f"{address}/readyz", timeout=5).status_code == 200
        # Aborted records and marks of transactions at the end do not wait.
        eventually(lambda: metrics_of(address).get("lag_records") == 0, timeout_s=60)
        after = asked(job, "status")
        assert (after["lag"], after["instances"]) == (0, 1)
        with store.away():
            job.write(RECORDS + 1, RECORDS + 100)
            eventually(lambda: metrics_of(address).get("target_up") == 0, timeout_s=60)
        eventually(lambda: store.content() == job.written, timeout_s=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    told = [json.loads(line) for line in (job.folder / "served").read_text().splitlines()]
    assert {each.get("delivery") for each in told if each["event"] == "batch"} == {job.name}


def test_a_faulty_delivery_fails_alone(job: Job, store: PostgresStore) -> None:
    job.set_up()
    job.write_much(RECORDS)
    folder = job.folder / "both"
    folder.mkdir()
    (folder / "dsn").write_text(store.server.dsn)
    good = FILE.format(name=job.name, topic=job.topic, to=store.to)
    (folder / "good.yaml").write_text(good)
    (folder / "bad.yaml").write_text(good.replace(job.name, "bad").replace("mode:", "mdoe:"))
    with served(job, folder) as (_, address):
        eventually(lambda: store.content() == job.written, timeout_s=RUN_TIMEOUT_S)
        seen = metrics_of(address)
        assert (seen["state running"], seen["state failed"]) == (1, 1)
        assert httpx.get(f"{address}/readyz", timeout=5).json()["waits_for"] == {"bad": "failed"}


def test_pipelines_and_deliveries_are_not_served_together(job: Job) -> None:
    job.set_up()
    (job.folder / "pipeline.yaml").write_text("apiVersion: onceflow/v1\nname: views\n")
    with served(job, job.folder / "pipeline.yaml", job.file) as (process, _):
        assert process.wait(RUN_TIMEOUT_S) == 2
    assert "one process serves files of one kind" in ((job.folder / "served").read_text())

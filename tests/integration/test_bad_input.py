"""Bad input ends in one sentence that names the thing, with the right error and nothing written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer

from onceflow.errors import ConfigError, OnceflowError, RecordError
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.drivers.here import QUICK, run_here
from tests.support.eventually import eventually
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic, find_topic, ordered_producer

INCOMPRESSIBLE = "array_join(transform(sequence(1, 200), i -> sha2(page || i, 256)), '')"
"""12,800 characters that no compression makes small: the limit is on what arrives."""


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    job.produce(Random(1), records=400, seconds=120)
    return job


def refused(job: ViewsJob, kind: type[OnceflowError], file: Path) -> str:
    """Run; expect this error; expect that no record became visible. Returns the message."""
    before = _visible(job)
    with pytest.raises(kind) as caught:
        run_here(file, job.bootstrap_servers)
    assert type(caught.value) is kind
    assert _visible(job) == before
    return str(caught.value)


def edited(job: ViewsJob, before: str, after: str) -> Path:
    file = job.write_file()
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    return file


def test_a_bad_record_in_the_middle_of_a_batch(job: ViewsJob) -> None:
    offset = _produce(job, b'{"page": "/1", "ms": "many", "at": "2026-03-01T00:00:30Z"}')
    job.produce(Random(2), records=400, seconds=60)
    message = refused(job, RecordError, job.write_file(batch=10_000))
    assert f"{job.input_topic}-0" in message.replace(" partition ", "-")
    assert str(offset) in message


def test_an_event_time_that_overflows(job: ViewsJob) -> None:
    file = edited(job, "event_time: at", "event_time: timestamp_millis(ms)")
    file.write_text(file.read_text().replace("window(at,", "window(_event_time,"))
    _produce(job, b'{"page": "/1", "ms": 9000000000000000000, "at": "2026-03-01T00:00:30Z"}')
    assert "overflow" in refused(job, RecordError, file)


def test_a_null_key(job: ViewsJob) -> None:
    file = edited(job, "SELECT page,", "SELECT nullif(page, '/1') AS page,")
    job.close_windows()
    message = refused(job, RecordError, file)
    assert "key column is null" in message
    assert job.output_topic in message


def test_a_record_larger_than_the_topic_takes(job: ViewsJob) -> None:
    create_topic(job.bootstrap_servers, job.output_topic, 3, {"max.message.bytes": "2000"})
    file = edited(job, "count(*) AS views,", f"{INCOMPRESSIBLE} AS big, count(*) AS views,")
    job.close_windows()
    message = refused(job, RecordError, file)
    assert job.output_topic in message
    assert "max.message.bytes" in message
    # Nothing is lost: with a query that fits, the same pipeline goes on and is right.
    run_here(
        job.write_file(), job.bootstrap_servers, is_change_accepted=True, reason="rows that fit"
    )


def test_output_larger_than_the_memory_budget(job: ViewsJob) -> None:
    job.close_windows()
    file = job.write_file()
    tight = replace(QUICK, max_result_bytes=200)
    with pytest.raises(ConfigError, match="memory budget") as caught:
        run_here(file, job.bootstrap_servers, tight)
    assert "200" in str(caught.value)
    assert "start again with a larger spark.max_result_bytes" in str(caught.value)
    assert _visible(job) == 0
    # The budget raised, nothing was lost.
    run_here(file, job.bootstrap_servers)
    job.check()


def test_a_consumer_that_joined_the_pipelines_group(job: ViewsJob) -> None:
    group = f"onceflow.{job.name}"
    consumer = Consumer({"bootstrap.servers": job.bootstrap_servers, "group.id": group})
    consumer.subscribe([job.input_topic])
    try:
        eventually(lambda: (consumer.poll(0.2), consumer.assignment())[1])
        assert group in refused(job, ConfigError, job.write_file())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "setting", ["transaction.state.log.min.isr", "transaction.state.log.replication.factor"]
)
def test_a_broker_that_can_never_begin_a_transaction(tmp_path: Path, setting: str) -> None:
    with ChildProcessCluster(ClusterOptions(settings={setting: "3"})) as cluster:
        job = ViewsJob(cluster.bootstrap_servers, tmp_path)
        job.create_input()
        with pytest.raises(ConfigError, match=setting.replace(".", r"\.")):
            run_here(job.write_file(), cluster.bootstrap_servers)


def _visible(job: ViewsJob) -> int:
    if find_topic(job.bootstrap_servers, job.output_topic) is None:
        return 0
    return len(read_topic(job.bootstrap_servers, job.output_topic))


def _produce(job: ViewsJob, value: bytes) -> int:
    """Write to partition 0; returns the offset."""
    offsets: list[int] = []
    producer = ordered_producer(job.bootstrap_servers)
    producer.produce(
        job.input_topic,
        value,
        partition=0,
        on_delivery=lambda _, m: offsets.append(m.offset() or 0),
    )
    assert producer.flush(30) == 0
    return offsets[0]

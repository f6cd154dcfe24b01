"""A whole pipeline when something happens to the topic that it reads.

Partitions that are added while it runs are in `tests/faults/test_topics.py`; what the source alone
does is in `tests/integration/test_source_kafka.py` and the conformance kit.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from onceflow.errors import ConfigError, CorruptionError
from tests.support.drivers.here import end_engine, run_here, running_here
from tests.support.jobs.views import FIRST, INPUT_PARTITIONS, View, ViewsJob
from tests.support.outside.groups import group_offsets
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.topics import (
    create_topic,
    delete_before,
    delete_topic,
    ordered_producer,
    recreate_topic,
    set_topic,
)

START_MS = 1_700_000_000_000
LOST = 7
"""Offsets of each partition that retention takes before they were read."""


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_an_input_topic_made_anew_is_not_read_on(job: ViewsJob, is_running: bool) -> None:
    """The new one is longer: by its offsets alone, nothing would be noticed."""
    file, servers = job.write_file(), job.bootstrap_servers
    job.produce(Random(1), records=100, seconds=100)

    def make_anew() -> None:
        recreate_topic(servers, job.input_topic, INPUT_PARTITIONS)
        job.send([View("/other", 1, FIRST + timedelta(hours=1))] * 300)

    if is_running:
        with running_here(file, servers) as running:
            running.wait_for_batches(1)
            make_anew()
            error = running.error()
    else:
        run_here(file, servers)
        make_anew()
        with pytest.raises(CorruptionError) as caught:
            run_here(file, servers)
        error = caught.value
    assert isinstance(error, CorruptionError)
    assert job.input_topic in str(error)
    assert sum(head["records"]["read"] for head in read_ledger(servers, job.name)) == 100


def test_retention_that_overtakes_a_stopped_pipeline_halts_it(job: ViewsJob) -> None:
    """With the range that is lost, and what can be done."""
    file, servers = job.write_file(), job.bootstrap_servers
    job.produce(Random(1), records=100, seconds=100)
    run_here(file, servers)
    before = read_ledger(servers, job.name)
    ends = before[-1]["sources"]["clicks"][job.input_topic]
    job.produce(Random(2), records=100, seconds=100)
    for partition in range(INPUT_PARTITIONS):
        _, end = ends[str(partition)]
        delete_before(servers, job.input_topic, partition, end + LOST)
    # Its workers have them already, and a process that stands still has no workers.
    end_engine()
    with pytest.raises(CorruptionError, match="deleted before they were read") as caught:
        run_here(file, servers)
    _, end = ends["0"]
    assert f"offsets [{end}, {end + LOST}) of {job.input_topic}-0" in str(caught.value)
    assert "retention.ms" in str(caught.value)
    assert "new generation" in str(caught.value)
    assert read_ledger(servers, job.name) == before


def test_a_deleted_topic_is_left_out_once_it_is_retired(job: ViewsJob) -> None:
    """Whether everything in it was read is no longer known, so the user must say so."""
    servers, old = job.bootstrap_servers, f"{job.input_topic}-old"
    create_topic(servers, old)
    job.produce(Random(1), records=100, seconds=100)
    both, file = f"topics: [{job.input_topic}, {old}]", job.write_file()
    file.write_text(file.read_text().replace(f"topics: [{job.input_topic}]", both))
    run_here(file, servers)
    delete_topic(servers, old)
    job.produce(Random(2), records=100, seconds=100)
    job.close_windows()
    with pytest.raises((ConfigError, CorruptionError), match="`retired`"):
        run_here(file, servers)
    file.write_text(file.read_text().replace(both, f"{both}, retired: [{old}]"))
    run_here(file, servers)
    job.check()
    assert (old, 0) not in group_offsets(servers, f"onceflow.{job.name}")


def test_a_pipeline_starts_at_its_timestamp_exact_to_the_record(job: ViewsJob) -> None:
    """Half a millisecond after a record: with the next one."""
    set_topic(job.bootstrap_servers, job.input_topic, {"retention.ms": "-1"})
    producer = ordered_producer(job.bootstrap_servers)
    for number in range(40):
        view = View(f"/{number}", 1, FIRST + timedelta(seconds=number))
        producer.produce(
            job.input_topic, view.to_json(), partition=number % 2, timestamp=START_MS + number
        )
    assert producer.flush(30) == 0
    at = "{timestamp: 2023-11-14T22:13:20.0165Z}"
    path = job.write_file()
    text = path.read_text().replace(
        "max_records_per_batch", f"starting: {at}, max_records_per_batch"
    )
    query = text[text.index("query: |") : text.index("sink:")]
    path.write_text(text.replace(query, "query: SELECT page, ms, at FROM clicks\n"))
    run_here(path, job.bootstrap_servers)
    found = [w.row["page"] for w in read_topic(job.bootstrap_servers, job.output_topic)]
    assert sorted(found) == sorted(f"/{number}" for number in range(17, 40))

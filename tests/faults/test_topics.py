"""Topics that are deleted, created again or enlarged under a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from onceflow.errors import ConfigError, CorruptionError, OnceflowError
from tests.support.brokers.children import ChildProcessCluster
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish, is_at_rest, run_here, running_here
from tests.support.drivers.service import END_TIMEOUT_S
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.eventually import eventually
from tests.support.jobs.views import INPUT_PARTITIONS, ViewsJob
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.topics import add_partitions, delete_topic, recreate_topic

OUTPUT_PARTITIONS = 3
IDLE_S = 2.0


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> ViewsJob:
    made = ViewsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.produce(Random(1), records=1_500, seconds=300)
    return made


def test_an_output_topic_made_anew_is_refused_at_the_next_start(job: ViewsJob) -> None:
    file = job.write_file()
    run_here(file, job.bootstrap_servers)
    recreate_topic(job.bootstrap_servers, job.output_topic, OUTPUT_PARTITIONS)
    job.produce(Random(2), records=500, seconds=100)
    with pytest.raises(ConfigError, match="deleted and created again"):
        run_here(file, job.bootstrap_servers)
    assert read_topic(job.bootstrap_servers, job.output_topic) == []


@pytest.mark.drawn(1)
@pytest.mark.parametrize("is_created_again", [True, False], ids=["created-again", "deleted"])
def test_an_output_topic_that_goes_while_a_pipeline_runs_halts_it(
    job: ViewsJob, is_created_again: bool
) -> None:
    with running_here(job.write_file(), job.bootstrap_servers) as running:
        eventually(lambda: job.read() == len(job.produced), timeout_s=END_TIMEOUT_S)
        # A batch that has looked at the topic before it goes may write to the new one.
        eventually(lambda: is_at_rest(running, IDLE_S), timeout_s=END_TIMEOUT_S)
        if is_created_again:
            recreate_topic(job.bootstrap_servers, job.output_topic, OUTPUT_PARTITIONS)
        else:
            delete_topic(job.bootstrap_servers, job.output_topic)
        job.produce(Random(2), records=1_500, seconds=300)
        error = running.error()
    assert isinstance(error, CorruptionError)
    assert job.output_topic in str(error)
    if is_created_again:
        assert read_topic(job.bootstrap_servers, job.output_topic) == []


def test_partitions_added_to_the_input_are_read_from_their_beginning(job: ViewsJob) -> None:
    file = job.write_file()
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(3)
        add_partitions(job.bootstrap_servers, job.input_topic, INPUT_PARTITIONS + 2)
        job.partitions = INPUT_PARTITIONS + 2
        job.produce(Random(2), records=1_500, seconds=300)
        running.wait_for_batches(8)
    finish(job, file)
    ends = read_ledger(job.bootstrap_servers, job.name)[-1]["sources"]["clicks"][job.input_topic]
    assert sorted(ends) == ["0", "1", "2", "3"]


def test_partitions_added_to_the_output_move_no_key(job: ViewsJob) -> None:
    file = job.write_file()
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(3)
        add_partitions(job.bootstrap_servers, job.output_topic, OUTPUT_PARTITIONS + 2)
        job.produce(Random(2), records=1_500, seconds=300)
        job.close_windows()
        running.wait_for_batches(8)
    written = {w.partition for w in read_topic(job.bootstrap_servers, job.output_topic)}
    assert written <= set(range(OUTPUT_PARTITIONS))
    # So does the next start, which says so.
    job.produce(Random(3), records=200, seconds=100)
    job.close_windows()
    events = run_here(file, job.bootstrap_servers)
    assert any("keys would move" in warning["text"] for warning in events.of_kind("warning"))
    job.check()
    written = {w.partition for w in read_topic(job.bootstrap_servers, job.output_topic)}
    assert written <= set(range(OUTPUT_PARTITIONS))


@pytest.fixture
def stage(broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[Stage]:
    with open_stage(broker.bootstrap_servers, topic("p")) as opened:
        yield opened


def test_a_ledger_deleted_under_a_driver_stops_it_with_nothing_written(stage: Stage) -> None:
    driver = stage.driver()
    driver.take_over()
    driver.commit(0, VALUES)
    before = read_topic(stage.bootstrap_servers, stage.name)
    delete_topic(stage.bootstrap_servers, f"onceflow.ledger.{stage.name}")
    with pytest.raises(OnceflowError):
        driver.commit(1, VALUES)
    assert read_topic(stage.bootstrap_servers, stage.name) == before


def test_consumer_offsets_deleted_under_a_driver_change_nothing(
    topic: Callable[[str], str],
) -> None:
    """The position is in the ledger; the group is there for people's tools."""
    with (
        ChildProcessCluster() as cluster,
        open_stage(cluster.bootstrap_servers, topic("p")) as stage,
    ):
        driver = stage.driver()
        driver.take_over()
        driver.commit(0, VALUES)
        delete_topic(cluster.bootstrap_servers, "__consumer_offsets")
        driver.commit(1, VALUES)
        driver.commit(2, VALUES)
        stage.check(batches=3)


def test_a_record_too_large_in_the_middle_of_a_batch_is_named_and_nothing_is_written(
    stage: Stage,
) -> None:
    # What compression makes small is none.
    too_large = b'{"n":"%s"}' % Random(1).randbytes(1_000_000).hex().encode()
    driver = stage.driver()
    driver.take_over()
    driver.commit(0, VALUES)
    with pytest.raises(OnceflowError, match=r"(?i)size|large"):
        driver.commit(1, [*VALUES[:20], too_large, *VALUES[20:]])
    successor = stage.driver()
    successor.take_over()
    successor.commit(1, VALUES)
    stage.check(batches=2)


def test_a_foreign_transaction_on_the_output_delays_readers_and_nothing_else(stage: Stage) -> None:
    """p: 40 rec + C | stranger, open | 40 rec + C | stranger aborts"""
    stranger = Producer(
        {"bootstrap.servers": stage.bootstrap_servers, "transactional.id": f"{stage.name}-stranger"}
    )
    driver = stage.driver()
    driver.take_over()
    driver.commit(0, VALUES)
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(stage.name, b"never", partition=0)
    stranger.flush(30)
    driver.commit(1, VALUES)
    driver.commit(2, VALUES)
    stranger.abort_transaction(30)
    stage.check(batches=3)

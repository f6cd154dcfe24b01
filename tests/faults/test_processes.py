"""Whole services side by side: taken over, frozen and thawed, drained by signals."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.support.brokers import RunningBroker
from tests.support.eventually import eventually
from tests.support.here import finish, run_here, running_here
from tests.support.service import Service, started
from tests.support.topics import readable_to_the_end
from tests.support.views_job import ViewsJob

FENCED = 4
START_TIMEOUT_S = 120.0
SHORT_TIMEOUT_MS = 6_000


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> ViewsJob:
    made = ViewsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.produce(Random(1), records=3_000, seconds=300)
    return made


def test_the_second_of_two_drivers_wins_and_the_first_ends_with_4(job: ViewsJob) -> None:
    file = job.write_file()
    servers = job.bootstrap_servers
    with started(job.folder / "first", file, servers) as first:
        first.wait_for_batches(2)
        with running_here(file, servers) as second:
            eventually(lambda: second.events.of_kind("owner"), timeout_s=START_TIMEOUT_S)
            job.produce(Random(2), records=1_000, seconds=100)
            assert first.wait() == FENCED, first.errors[-3000:]
            second.wait_for_batches(1)
    finish(job, file)


def test_a_driver_frozen_beyond_its_transaction_timeout_writes_nothing_when_thawed(
    job: ViewsJob,
) -> None:
    """out: n rec (A, open, frozen) | coordinator aborts | B: n rec + C | A thaws: fenced"""
    file = job.write_file()
    servers = job.bootstrap_servers
    short = {"ONCEFLOW_TRANSACTION_TIMEOUT": f"{SHORT_TIMEOUT_MS} ms"}
    arguments = ("--until", "caught-up")
    with started(
        job.folder / "frozen",
        file,
        servers,
        *arguments,
        crash="before_commit:stop:5",
        environment=short,
    ) as frozen:
        eventually((job.folder / "frozen" / "crashed").exists, timeout_s=START_TIMEOUT_S)
        # How much of the batch the client had sent when it froze differs from run to run.
        eventually(
            lambda: readable_to_the_end(job.bootstrap_servers, job.output_topic), timeout_s=60
        )
        run_here(file, servers)
        frozen.send(signal.SIGCONT)
        assert frozen.wait() == FENCED, frozen.errors[-3000:]
    finish(job, file)


def test_the_second_signal_stops_at_once_and_loses_nothing(job: ViewsJob) -> None:
    """out: n rec (A, open) | killed by the 2nd SIGTERM | B: fence, n rec + C"""
    file = job.write_file(batch=300)
    proof = job.folder / "stopped" / "crashed"
    # The batch stands still before its commit, so the drain that the first one asks for waits.
    with started(
        job.folder / "stopped", file, job.bootstrap_servers, crash="before_commit:hold:3"
    ) as service:
        eventually(proof.exists, timeout_s=START_TIMEOUT_S)
        service.send(signal.SIGTERM)
        service.wait_for("draining")
        service.send(signal.SIGTERM)
        assert service.wait() == -signal.SIGTERM, service.errors[-3000:]
    assert not service.of_kind("drained")
    finish(job, file)


def test_instances_that_stand_by_take_over_from_one_killed_frozen_and_drained(
    job: ViewsJob, random: Random
) -> None:
    """One after the other on one pipeline: each start of a process takes ten seconds.

    The last one is drained by either signal: its batch commits, and nothing is left open.
    """
    file, servers = job.write_file(batch=300), job.bootstrap_servers

    def stood_by(name: str) -> Service:
        service = stack.enter_context(started(job.folder / name, file, servers, "--standby"))
        service.wait_for("standby")
        return service

    def takes_over(service: Service) -> str:
        """Waits for its first batch; returns why it took over."""
        job.produce(Random(3), records=500, seconds=50)
        service.wait_for_batches(1)
        return str(service.of_kind("taking_over")[0]["why"])

    with ExitStack() as stack:
        first = stack.enter_context(started(job.folder / "first", file, servers))
        second = stood_by("second")
        first.wait_for_batches(2)
        job.produce(Random(2), records=500, seconds=50)
        assert not second.of_kind("owner")
        first.kill()
        assert "it has ended" not in takes_over(second)

        third = stood_by("third")
        second.freeze()
        assert "it has ended" not in takes_over(third)
        second.thaw()
        assert second.wait() == FENCED, second.errors[-3000:]

        unneeded, fourth = stood_by("unneeded"), stood_by("fourth")
        unneeded.drain()
        assert not unneeded.of_kind("owner")
        assert unneeded.of_kind("drained")
        third.drain()
        assert "it has ended" in takes_over(fourth)
        job.produce(Random(4), records=1_000, seconds=100)
        fourth.drain(random.choice([signal.SIGTERM, signal.SIGINT]))
        assert fourth.of_kind("drained")
        last = fourth.of_kind("batch")[-1]["batch_id"]
    assert (job.checkpoint / "commits" / str(last)).exists()
    assert readable_to_the_end(servers, job.output_topic)
    job.close_windows()
    finished = run_here(file, servers)
    assert not any(batch["is_skipped"] for batch in finished.of_kind("batch"))
    job.check()

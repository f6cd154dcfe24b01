"""Whole services side by side: taken over, frozen and thawed, drained by signals."""

from __future__ import annotations

import signal
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

import pytest
from kafka import KafkaAdminClient

from onceflow.app import LANES
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish, run_here, running_here
from tests.support.drivers.service import Service, started
from tests.support.eventually import eventually
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import readable_to_the_end

pytestmark = pytest.mark.crash

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


def timeouts_of_open_transactions(job: ViewsJob) -> set[int]:
    """Milliseconds, as the coordinator has them."""
    with closing(KafkaAdminClient(bootstrap_servers=job.bootstrap_servers)) as admin:
        ours = [f"onceflow.{job.name}.s0.l{lane}" for lane in range(LANES)]
        found = admin.describe_transactions(ours).values()
    return {each.transaction_timeout_ms for each in found if each.state == "Ongoing"}


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
        assert timeouts_of_open_transactions(job) == {SHORT_TIMEOUT_MS}
        # How much of the batch the client had sent when it froze differs from run to run.
        eventually(
            lambda: readable_to_the_end(job.bootstrap_servers, job.output_topic), timeout_s=60
        )
        run_here(file, servers)
        frozen.send(signal.SIGCONT)
        assert frozen.wait() == FENCED, frozen.errors[-3000:]
    finish(job, file)


@pytest.fixture
def cards(broker: RunningBroker, tmp_path: Path) -> CardsJob:
    made = CardsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.produce(Random(1), records=3_000, seconds=300)
    return made


def takes_over(service: Service, job: CardsJob) -> str:
    """Waits for its first batch; returns why it took over."""
    job.produce(Random(3), records=500, seconds=50)
    service.wait_for_batches(1)
    return why(service)


def why(service: Service) -> str:
    """It took over."""
    return str(service.of_kind("taking_over")[0]["why"])


def test_instances_that_stand_by_take_over_from_one_killed_frozen_and_drained(
    cards: CardsJob, random: Random
) -> None:
    """One after the other on one pipeline: each start of a process takes ten seconds. It has a
    processor, whose state and timers each goes on with.

    The drained one commits its batch and leaves nothing open. The last gets two signals to end, and
    ends with its batch open: out: n rec (A, open) | killed by the 2nd signal | B: fence, n rec + C
    """
    job = cards
    file, servers = job.write_file(300), job.bootstrap_servers
    a_signal = random.choice([signal.SIGTERM, signal.SIGINT])

    def stood_by(name: str, crash: str | None = None) -> Service:
        folder = job.folder / name
        service = stack.enter_context(started(folder, file, servers, "--standby", crash=crash))
        service.wait_for("standby")
        return service

    with ExitStack() as stack:
        first = stack.enter_context(started(job.folder / "first", file, servers))
        second = stood_by("second")
        first.wait_for_batches(2)
        job.produce(Random(2), records=500, seconds=50)
        assert not second.of_kind("owner")
        first.kill()
        assert "it has ended" not in takes_over(second, job)

        third = stood_by("third")
        second.freeze()
        assert "it has ended" not in takes_over(third, job)
        second.thaw()
        assert second.wait() == FENCED

        unneeded, fourth = stood_by("unneeded"), stood_by("fourth", "before_commit:hold:1")
        unneeded.drain()
        assert not unneeded.of_kind("owner")
        assert unneeded.of_kind("drained")
        third.drain(a_signal)
        assert third.of_kind("drained")
        last = third.of_kind("batch")[-1]["batch_id"]
        assert (job.checkpoint / "commits" / str(last)).exists()

        # Its batch stands still before its commit, so the drain that is asked for waits.
        job.produce(Random(4), records=500, seconds=50)
        eventually((job.folder / "fourth" / "crashed").exists, timeout_s=START_TIMEOUT_S)
        assert "it has ended" in why(fourth)
        fourth.send(a_signal)
        fourth.wait_for("draining")
        fourth.send(a_signal)
        assert fourth.wait() == -a_signal, fourth.errors[-3000:]
        assert not fourth.of_kind("drained")
    finish(job, file)

"""Several that want to be the writer, for longer than one batch."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_sink import RealSink
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic

TURNS = 10
BATCHES = 1_000
"""More than are written in all turns together: each turn ends because it is ended."""
LANES = 3
MIN_HIJACKS = 10
HIJACK_PAUSE_S = 0.05
END_TIMEOUT_S = 60.0


@pytest.fixture
def stage(broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[Stage]:
    with open_stage(broker.bootstrap_servers, topic("p")) as opened:
        yield opened


@dataclass(frozen=True)
class Rival:
    """A driver in a process of its own."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def commits(self) -> list[str]:
        """The run_id of each batch that it has committed, as far as it got to tell."""
        return self.output.read_text().split()


@contextmanager
def rival(stage: Stage, output: Path) -> Iterator[Rival]:
    command = [sys.executable, "-m", "tests.support.drivers.writing"]
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*command, stage.bootstrap_servers, stage.name, str(BATCHES)],
            cwd=Path(__file__).parents[2],
            stdout=out,
        )
    try:
        yield Rival(process, output)
    finally:
        process.kill()
        process.wait(END_TIMEOUT_S)


def check(stage: Stage) -> None:
    """A last driver finds everything in order, and goes on."""
    last = stage.driver()
    head = last.take_over().head
    assert head is not None
    last.commit(head.batch.batch_id + 1, VALUES)
    stage.check(batches=head.batch.batch_id + 2)


def test_two_drivers_stopped_and_continued_in_turn(
    stage: Stage, random: Random, tmp_path: Path
) -> None:
    """Each wakes up in the middle of what it was doing, while the other has gone on."""
    owners: list[str] = []
    with rival(stage, tmp_path / "first") as first, rival(stage, tmp_path / "second") as second:
        second.process.send_signal(signal.SIGSTOP)
        for turn in range(TURNS):
            active = (first, second)[turn % 2]
            active.process.send_signal(signal.SIGCONT)
            owners.append(_goes_on(active, seen=owners, batches=random.randint(1, 4)))
            active.process.send_signal(signal.SIGSTOP)
    assert len(set(owners)) == TURNS
    check(stage)


def _goes_on(active: Rival, seen: Sequence[str], batches: int) -> str:
    """Wait until it has taken over and written some batches; its run_id."""

    def of_this_turn() -> list[str]:
        assert active.process.poll() is None
        return [run_id for run_id in active.commits if run_id not in seen]

    return eventually(of_this_turn, lambda found: len(found) >= batches, timeout_s=END_TIMEOUT_S)[
        -1
    ]


def test_a_stranger_who_keeps_initialising_our_transactional_ids(
    stage: Stage, tmp_path: Path
) -> None:
    """It delays; it can neither lose nor repeat anything. When it stops, the driver goes on."""
    hijacks = Counter[str]()
    is_over = threading.Event()

    def hijack() -> None:
        for lane in itertools.cycle(range(LANES)):
            if is_over.wait(HIJACK_PAUSE_S):
                return
            name = f"onceflow.{stage.name}.s0.l{lane}"
            stranger = Producer(
                {"bootstrap.servers": stage.bootstrap_servers, "transactional.id": name}
            )
            # Refused if the driver was quicker, and has fenced it meanwhile.
            with suppress(KafkaException):
                stranger.init_transactions(10)
                hijacks[name] += 1

    with rival(stage, tmp_path / "rival") as driver, ThreadPoolExecutor(1) as thread:
        eventually(lambda: len(driver.commits) > 1, timeout_s=END_TIMEOUT_S)
        stranger = thread.submit(hijack)
        try:
            eventually(lambda: hijacks.total() >= MIN_HIJACKS, timeout_s=END_TIMEOUT_S)
        finally:
            is_over.set()
        stranger.result(END_TIMEOUT_S)
        before = len(driver.commits)
        eventually(lambda: len(driver.commits) > before + 3, timeout_s=END_TIMEOUT_S)
    assert len(hijacks) == LANES
    check(stage)


def test_kafka_aborts_a_transaction_that_takes_too_long(stage: Stage) -> None:
    """out: 40 rec (open) | the coordinator's time-out | the driver writes them again, once"""
    faults = Faults()
    driver = stage.driver(wrap=faults.wrap, properties={"transaction.timeout.ms": "2000"})
    driver.take_over()
    driver.commit(0, VALUES)
    # Readable to its end again: the transaction that held it is over.
    faults.before_commit = lambda: _until_aborted(stage)
    driver.commit(1, VALUES)
    assert faults.fired == ["before_commit"]
    driver.commit(2, VALUES)
    assert len(read_topic(stage.bootstrap_servers, stage.name, "read_uncommitted")) > 3 * len(
        VALUES
    )
    stage.check(batches=3)


def _until_aborted(stage: Stage) -> None:
    sink = RealSink(stage.bootstrap_servers)
    eventually(lambda: sink.undecided(stage.name) > 0)
    eventually(lambda: sink.undecided(stage.name) == 0)
    sink.broker.close()

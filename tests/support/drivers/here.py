"""Runs the application inside the test's own process: its JVM is started once and stays warm.

For everything that does not have to be killed. What has to be is run by `service.py`.
`run_until_it_fails` stands for a kill: its open transaction stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from onceflow.app import Application, RunOptions
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.crashpoints import CrashPoint
from onceflow.errors import OnceflowError, RetriableError
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.run import Surroundings
from onceflow.runtime.batch import batch
from onceflow.runtime.commit import committer, lanes, takeover
from onceflow.runtime.query import query
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.session import SessionSettings, SharedEngine
from tests.support.drivers.service import END_TIMEOUT_S, QUICK_CONF
from tests.support.eventually import eventually
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob

QUICK = SessionSettings(
    master="local[2]",
    driver_memory="1g",
    shuffle_partitions=1,
    conf=QUICK_CONF,
)
"""Enough for some thousand records, and fewer files than one partition per core."""


_kept: list[tuple[SessionSettings, SharedEngine]] = []
"""The Spark of this process, if it has been started."""


def engine(settings: SessionSettings = QUICK) -> SharedEngine:
    """Spark, kept from run to run as `serve` keeps it from start to start of its pipelines.

    The start of its context and of its Python workers is most of what a short run would cost. One
    with other settings ends the one before.
    """
    if not _kept or _kept[0][0] != settings or _kept[0][1].loss():
        end_engine()
        _kept.append((settings, SharedEngine(settings)))
    return _kept[0][1]


def end_engine() -> None:
    """End Spark, as with its process: then nothing is left of what its workers fetched ahead."""
    while _kept:
        _kept.pop()[1].stop()


def keep_engine(monkeypatch: pytest.MonkeyPatch, settings: SessionSettings = QUICK) -> None:
    """Let commands join the Spark of this process without ending it: others go on with it.

    Call it before anything runs, or with the settings that have run: Spark with other settings,
    which has to end, could not after it.
    """
    engine(settings)
    monkeypatch.setattr(jvm, "stop", lambda _: None)


LOST_WITH_THE_TEST = CheckpointWaiver(
    reason="a test, on a disk in memory or in a container", until=date.max
)


@dataclass
class Events:
    """Events that a run reported."""

    all: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: str, /, **facts: object) -> None:
        self.all.append({"event": event, **facts})

    def of_kind(self, event: str) -> list[dict[str, Any]]:
        return [fact for fact in self.all if fact["event"] == event]


def application(
    file: Path,
    brokers: str | Connection,
    options: RunOptions | None = None,
    session: SessionSettings = QUICK,
) -> tuple[Application, Events]:
    """An application that ends when it has caught up, unless `options` say otherwise."""
    events = Events()
    around = Surroundings(
        connector=find_connector("kafka"),
        connection=Connection(brokers) if isinstance(brokers, str) else brokers,
        session=session,
        clock=SystemClock(),
        report=events,
        checkpoint_waiver=LOST_WITH_THE_TEST,
        engine=engine(session),
    )
    chosen = options or RunOptions(is_until_caught_up=True)
    return Application(load_pipeline(file), chosen, around), events


def run_here(
    file: Path,
    brokers: str | Connection,
    session: SessionSettings = QUICK,
    **options: Any,
) -> Events:
    """Run until caught up; errors of the product come out as they are."""
    chosen = replace(RunOptions(is_until_caught_up=True), **options)
    made, events = application(file, brokers, chosen, session)
    made.run()
    return events


class DeadError(RetriableError):
    """Stands for a kill: no code aborts, settles or commits anything after it."""


def run_until_it_fails(
    file: Path,
    bootstrap_servers: str,
    point: CrashPoint,
    arrivals: int,
    session: SessionSettings = QUICK,
) -> None:
    """Run until the committer arrives at `point` for that time, and end the driver there."""
    left = [None] * arrivals

    def is_last(reached: CrashPoint) -> bool:
        if reached is point:
            left.pop()
        return not left

    with dying(is_last), pytest.raises(DeadError):
        run_here(file, bootstrap_servers, session)


@contextmanager
def dying(is_here: Callable[[CrashPoint], bool]) -> Iterator[None]:
    """A driver that runs inside ends where `is_here` says so of a crash point."""

    def reach(reached: CrashPoint) -> None:
        if is_here(reached):
            raise DeadError("died on purpose")

    with ExitStack() as patches:
        for module in (batch, committer, lanes, query, takeover):
            patches.enter_context(patch.object(module, "reach", reach))
        yield


@dataclass
class Running:
    """A pipeline that runs in a thread of the test's process."""

    events: Events
    result: Future[None]
    is_error_expected: bool = False

    def wait_for_batches(self, count: int) -> None:
        """Until so many were committed since the start; fails if it ends before."""
        eventually(
            lambda: len(self.events.of_kind("batch")) >= count or self.result.done(),
            timeout_s=END_TIMEOUT_S,
        )
        if len(self.events.of_kind("batch")) < count:
            self.result.result()
            raise AssertionError(f"ended before batch {count}")

    def error(self) -> OnceflowError:
        """Wait for the end and return its error."""
        self.is_error_expected = True
        error = self.result.exception(END_TIMEOUT_S)
        assert isinstance(error, OnceflowError), error
        return error


@contextmanager
def running_here(
    file: Path, brokers: str | Connection, session: SessionSettings = QUICK, **options: Any
) -> Iterator[Running]:
    """Run until the block ends, then drain. An error that the test did not ask for is raised."""
    made, events = application(file, brokers, RunOptions(**options), session)
    with ThreadPoolExecutor(1) as thread:
        running = Running(events, thread.submit(made.run))
        try:
            yield running
        finally:
            made.request_drain()
            error = running.result.exception(END_TIMEOUT_S)
    if error is not None and not running.is_error_expected:
        raise error


def finish(job: ViewsJob | CardsJob, file: Path) -> None:
    """Close every window, run to the end of the input, and compare with the oracle."""
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.check()


def batches(events: Events) -> Sequence[dict[str, Any]]:
    return events.of_kind("batch")


def is_at_rest(running: Running, idle_s: float) -> bool:
    """Whether no batch follows in a time in which several ticks would have been due."""
    before, pause = len(batches(running.events)), SystemClock().within(2 * idle_s)
    eventually(lambda: pause.is_over)
    return len(batches(running.events)) == before

"""Pipelines of one process live and fail by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest

from onceflow.clock import SystemClock
from onceflow.errors import ConfigError, CorruptionError, DeadlineError, RetriableError
from onceflow.pipeline.file.policies import Restart
from onceflow.serve import fleet as fleet_module
from onceflow.serve.fleet import Desired, Fleet, Member, Observed
from onceflow.serve.restarts import Restarts
from tests.support.eventually import eventually
from tests.support.fakes.runs import Maker, wait_until

WAIT_S = 10.0


QUICK = Restart.model_validate({"attempts": 3, "delay": "1 ms", "jitter": 0})


def member(maker: Maker, name: str = "views", policy: Restart = QUICK) -> Member:
    return Member(name, maker, Restarts(policy, SystemClock(), Random(1)), maker.listen)


@contextmanager
def living(maker: Maker, policy: Restart = QUICK) -> Iterator[Member]:
    made = member(maker, policy=policy)
    made.begin()
    try:
        yield made
    finally:
        made.end()
        assert made.has_ended(WAIT_S)


@contextmanager
def running(fleet: Fleet) -> Iterator[Callable[[], BaseException | None]]:
    """Gives what the fleet ended with."""
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(fleet.run)
        try:
            yield lambda: result.exception(WAIT_S)
        finally:
            fleet.request_drain()


def test_it_runs_and_drains() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        wait_until(pipeline, Observed.RUNNING)
        assert pipeline.status().desired is Desired.RUNNING
    assert pipeline.status().observed is Observed.STOPPED
    assert maker.events == ["running", "draining", "stopped"]


def test_a_failure_that_may_pass_is_followed_by_a_start() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        for number in range(3):
            eventually(partial(maker.has_made, number + 1))
            maker.runs[number].fail(RetriableError("gone"))
        eventually(lambda: len(maker.runs) == 4)
        assert pipeline.status().restarts == 3
        wait_until(pipeline, Observed.RUNNING)
        assert pipeline.status().error is None
        maker.runs[3].fail(RetriableError("gone for good"))
        wait_until(pipeline, Observed.FAILED)
        assert "for good" in str(pipeline.status().error)
    assert len(maker.runs) == 4
    assert maker.events[:6] == ["running", "failed", "waiting"] * 2


@pytest.mark.parametrize("error", [CorruptionError("two truths"), ConfigError("refused")])
def test_a_permanent_failure_waits_for_somebody(error: Exception) -> None:
    maker = Maker()
    with living(maker) as pipeline:
        eventually(lambda: len(maker.runs) == 1)
        maker.runs[0].fail(error)
        wait_until(pipeline, Observed.FAILED)
        assert pipeline.status().desired is Desired.RUNNING
        pipeline.start()
        eventually(lambda: len(maker.runs) == 2)


@pytest.mark.parametrize(
    ("fault", "observed"),
    [(ConfigError("no such file"), Observed.FAILED), (ZeroDivisionError("ours"), Observed.RUNNING)],
)
def test_a_start_that_fails_is_a_failure_of_this_pipeline_alone(
    fault: Exception, observed: Observed
) -> None:
    maker = Maker(faults=[fault])
    with living(maker) as pipeline:
        wait_until(pipeline, observed)
        pipeline.restart()
        wait_until(pipeline, Observed.RUNNING)


def test_waiting_for_the_next_start_ends_when_it_is_stopped() -> None:
    maker = Maker()
    patient = Restart.model_validate({"delay": "1 h", "max_delay": "1 h"})
    with living(maker, patient) as pipeline:
        eventually(lambda: len(maker.runs) == 1)
        maker.runs[0].fail(DeadlineError("slow"))
        wait_until(pipeline, Observed.WAITING)
        pipeline.start()
        eventually(lambda: len(maker.runs) == 2)
        maker.runs[1].fail(DeadlineError("slow"))
        wait_until(pipeline, Observed.WAITING)


@pytest.mark.parametrize("order", [Member.stop, Member.restart])
def test_an_order_during_a_start_is_not_forgotten(order: Callable[[Member], None]) -> None:
    maker = Maker()
    pipeline = member(maker)
    orders = [order]
    maker.on_make = lambda: orders.pop()(pipeline) if orders else None
    pipeline.begin()
    eventually(lambda: maker.runs != [] and maker.runs[0].told.is_set())
    if order is Member.restart:
        eventually(lambda: len(maker.runs) == 2)
    pipeline.end()
    assert pipeline.has_ended(WAIT_S)


def test_an_order_is_seen_at_once() -> None:
    """So that a client that polls never takes the state before its order for the result."""
    maker, makes = Maker(), threading.Semaphore(1)
    maker.on_make = lambda: assert_(makes.acquire(timeout=WAIT_S))
    with living(maker) as pipeline:
        wait_until(pipeline, Observed.RUNNING)
        pipeline.start()
        assert pipeline.status().observed is Observed.RUNNING
        pipeline.restart()
        assert pipeline.status().observed is not Observed.RUNNING
        makes.release()
        wait_until(pipeline, Observed.RUNNING)
        pipeline.stop()
        assert pipeline.status().observed is not Observed.RUNNING
        wait_until(pipeline, Observed.STOPPED)
        pipeline.start()
        assert pipeline.status().observed is Observed.STARTING
        makes.release()
        wait_until(pipeline, Observed.RUNNING)
        assert len(maker.runs) == 3


def test_a_start_after_a_failure_forgets_it_at_once() -> None:
    maker, released = Maker(faults=[ConfigError("a fault")]), threading.Event()
    with living(maker) as pipeline:
        wait_until(pipeline, Observed.FAILED)
        assert "a fault" in str(pipeline.status().error)
        maker.on_make = lambda: assert_(released.wait(WAIT_S))
        pipeline.start()
        assert pipeline.status().observed is Observed.STARTING
        assert pipeline.status().error is None
        released.set()
        wait_until(pipeline, Observed.RUNNING)


def test_a_drain_during_a_start_is_never_seen_as_running() -> None:
    maker, seen = Maker(), list[Observed]()
    pipeline = member(maker)
    maker.on_make = lambda: pipeline.stop() if not maker.runs else None
    report = maker.listen

    def listen(event: str, /, **facts: object) -> None:
        seen.append(pipeline.status().observed)
        report(event, **facts)

    pipeline = Member("views", maker, Restarts(QUICK, SystemClock(), Random(1)), listen)
    pipeline.begin()
    wait_until(pipeline, Observed.STOPPED)
    pipeline.end()
    assert pipeline.has_ended(WAIT_S)
    assert set(seen) == {Observed.DRAINING, Observed.STOPPED}


def assert_(condition: bool) -> None:
    assert condition


def test_the_failure_of_one_leaves_the_others_running() -> None:
    good, bad = Maker(), Maker()
    fleet = Fleet([member(good, "good"), member(bad, "bad")], lambda: None, SystemClock())
    with running(fleet) as ended:
        eventually(lambda: bool(good.runs and bad.runs))
        bad.runs[0].fail(CorruptionError("two truths"))
        wait_until(fleet.members["bad"], Observed.FAILED)
        assert fleet.members["good"].status().observed is Observed.RUNNING
        fleet.request_drain()
        assert ended() is None
    assert good.events[-2:] == ["draining", "stopped"]


def test_when_none_is_left_the_process_says_why() -> None:
    makers = [Maker(faults=[ConfigError("first")]), Maker(faults=[CorruptionError("second")])]
    members = [member(maker, f"p{number}") for number, maker in enumerate(makers)]
    fleet = Fleet(members, lambda: None, SystemClock())
    with running(fleet) as ended:
        assert isinstance(ended(), ConfigError)


def test_without_spark_all_end() -> None:
    maker, losses = Maker(), [RetriableError("Spark has ended", found="signal 9")]
    lost = threading.Event()
    fleet = Fleet([member(maker)], lambda: losses[0] if lost.is_set() else None, SystemClock())
    with running(fleet) as ended:
        eventually(lambda: bool(maker.runs))
        assert not fleet.has_lost_engine
        lost.set()
        assert ended() is losses[0]
    assert fleet.has_lost_engine
    assert maker.events[-1] == "stopped"


def test_without_spark_nobody_waits_for_one_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "LOST_END_TIMEOUT_S", 0.05)
    maker, released = Maker(), threading.Event()
    maker.on_make = lambda: assert_(released.wait(WAIT_S))
    lost = RetriableError("Spark has ended")
    with running(Fleet([member(maker)], lambda: lost, SystemClock())) as ended:
        assert ended() is lost
        released.set()


def test_renewed_secrets_restart_what_is_to_run() -> None:
    makers, renewed = [Maker(), Maker()], threading.Event()

    def is_renewed() -> bool:
        was_set = renewed.is_set()
        renewed.clear()
        return was_set

    members = [member(maker, f"p{number}") for number, maker in enumerate(makers)]
    fleet = Fleet(members, lambda: None, SystemClock(), is_renewed)
    with running(fleet):
        eventually(lambda: all(maker.runs for maker in makers))
        members[1].stop()
        wait_until(members[1], Observed.STOPPED)
        renewed.set()
        eventually(lambda: len(makers[0].runs) == 2)
        assert makers[0].events == ["running", "draining", "stopped", "running"]
        assert len(makers[1].runs) == 1

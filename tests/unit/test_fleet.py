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
from onceflow.ops import fleet as fleet_module
from onceflow.ops.fleet import Desired, Fleet, Member, Observed
from onceflow.ops.restarts import Restarts
from onceflow.pipeline.restart import Restart
from tests.support.eventually import eventually
from tests.support.runs import Maker

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
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
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
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
        assert pipeline.status().error is None
        maker.runs[3].fail(RetriableError("gone for good"))
        assert pipeline.wait_for(Observed.FAILED, WAIT_S)
        assert "for good" in str(pipeline.status().error)
    assert len(maker.runs) == 4
    assert maker.events[:6] == ["running", "failed", "waiting"] * 2


@pytest.mark.parametrize("error", [CorruptionError("two truths"), ConfigError("refused")])
def test_a_permanent_failure_waits_for_somebody(error: Exception) -> None:
    maker = Maker()
    with living(maker) as pipeline:
        eventually(lambda: len(maker.runs) == 1)
        maker.runs[0].fail(error)
        assert pipeline.wait_for(Observed.FAILED, WAIT_S)
        assert pipeline.status().desired is Desired.RUNNING
        pipeline.start()
        eventually(lambda: len(maker.runs) == 2)


def test_a_file_that_cannot_be_loaded_is_a_failure_of_this_pipeline_alone() -> None:
    maker = Maker(faults=[ConfigError("no such file")])
    with living(maker) as pipeline:
        assert pipeline.wait_for(Observed.FAILED, WAIT_S)
        pipeline.restart()
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)


def test_an_error_that_nobody_expected_touches_nobody_else() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        eventually(lambda: len(maker.runs) == 1)
        maker.runs[0].fail(ZeroDivisionError("ours"))
        eventually(lambda: len(maker.runs) == 2)
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)


def test_stopped_it_stays_until_it_is_started() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
        pipeline.stop()
        assert pipeline.wait_for(Observed.STOPPED, WAIT_S)
        assert pipeline.status().desired is Desired.STOPPED
        pipeline.start()
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
    assert len(maker.runs) == 2


def test_a_restart_drains_and_makes_it_anew() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
        pipeline.restart()
        eventually(lambda: len(maker.runs) == 2)
        assert maker.runs[0].error is None
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
        assert pipeline.status().restarts == 0


def test_waiting_for_the_next_start_ends_when_it_is_stopped() -> None:
    maker = Maker()
    patient = Restart.model_validate({"delay": "1 h", "max_delay": "1 h"})
    with living(maker, patient) as pipeline:
        eventually(lambda: len(maker.runs) == 1)
        maker.runs[0].fail(DeadlineError("slow"))
        assert pipeline.wait_for(Observed.WAITING, WAIT_S)
        pipeline.start()
        eventually(lambda: len(maker.runs) == 2)
        maker.runs[1].fail(DeadlineError("slow"))
        assert pipeline.wait_for(Observed.WAITING, WAIT_S)


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


RUNS = (Observed.RUNNING, Observed.STANDBY)


def test_orders_are_followed_until_they_are_true() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        assert pipeline.follow(Member.start, RUNS, WAIT_S) is Observed.RUNNING
        assert pipeline.follow(Member.start, RUNS, WAIT_S) is Observed.RUNNING
        assert len(maker.runs) == 1
        assert pipeline.follow(Member.restart, RUNS, WAIT_S) is Observed.RUNNING
        assert len(maker.runs) == 2
        assert pipeline.follow(Member.stop, (Observed.STOPPED,), WAIT_S) is Observed.STOPPED
        assert pipeline.follow(Member.stop, (Observed.STOPPED,), WAIT_S) is Observed.STOPPED
        assert pipeline.follow(Member.restart, RUNS, WAIT_S) is Observed.RUNNING
        assert len(maker.runs) == 3


def test_an_order_that_cannot_become_true_says_so() -> None:
    maker = Maker()
    with living(maker) as pipeline:
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)
        maker.faults.append(ConfigError("a new fault"))
        assert pipeline.follow(Member.restart, RUNS, WAIT_S) is Observed.FAILED
        assert "a new fault" in str(pipeline.status().error)
        assert pipeline.follow(Member.stop, (Observed.STOPPED,), WAIT_S) is Observed.STOPPED
        assert pipeline.follow(Member.start, RUNS, WAIT_S) is Observed.RUNNING


def test_an_order_is_not_followed_for_ever() -> None:
    maker, released = Maker(), threading.Event()
    maker.on_make = lambda: assert_(released.wait(WAIT_S))
    with living(maker) as pipeline:
        assert pipeline.follow(Member.start, RUNS, 0.05) is Observed.STARTING
        released.set()
        assert pipeline.wait_for(Observed.RUNNING, WAIT_S)


def assert_(condition: bool) -> None:
    assert condition


def test_the_failure_of_one_leaves_the_others_running() -> None:
    good, bad = Maker(), Maker()
    fleet = Fleet([member(good, "good"), member(bad, "bad")], lambda: None, SystemClock())
    with running(fleet) as ended:
        eventually(lambda: bool(good.runs and bad.runs))
        bad.runs[0].fail(CorruptionError("two truths"))
        assert fleet.members["bad"].wait_for(Observed.FAILED, WAIT_S)
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
        members[1].follow(Member.stop, [Observed.STOPPED], WAIT_S)
        renewed.set()
        eventually(lambda: len(makers[0].runs) == 2)
        assert makers[0].events == ["running", "draining", "stopped", "running"]
        assert len(makers[1].runs) == 1

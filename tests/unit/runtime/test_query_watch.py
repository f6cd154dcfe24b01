"""Watches of a running query may end it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceflow.errors import ConfigError, RetriableError
from onceflow.runtime.query.query import RunningQuery
from tests.support.clock import ManualClock

LIMIT_S = 900.0


class EndlessQuery:
    """As much of Spark's as a watch needs."""

    lastProgress = None
    is_stopped = False
    is_over = False
    stop_error: Exception | None = None

    def awaitTermination(self, _: float) -> bool:
        return self.is_over

    def stop(self) -> None:
        self.is_stopped = True
        if self.stop_error is not None:
            raise self.stop_error


@dataclass
class Gate:
    is_closed: bool = False

    def close(self, _: float) -> bool:
        self.is_closed = True
        return False


@dataclass
class Runner:
    computing: int | None = None
    gate: Gate = field(default_factory=Gate)


def running(spark: EndlessQuery, runner: Runner, clock: ManualClock) -> RunningQuery:
    return RunningQuery(cast("Any", spark), cast("Any", runner), cast("Any", None), clock, LIMIT_S)


def test_a_batch_that_is_computed_for_too_long_is_cut_off() -> None:
    spark, runner, clock = EndlessQuery(), Runner(computing=7), ManualClock()
    seconds: list[float] = []

    def tick(_: object) -> None:
        # Batches that take their time, one after the other, are none that takes too long.
        seconds.append(clock.monotonic_s())
        clock.sleep(LIMIT_S / 4)
        if len(seconds) < 12 and len(seconds) % 3 == 0:
            runner.computing = len(seconds)
        if len(seconds) == 12:
            runner.computing = 99

    with pytest.raises(ConfigError, match=r"takes too long: batch 99; .* 900 s .*max_batch_s"):
        running(spark, runner, clock).watch(lambda: False, tick, [])
    assert spark.is_stopped
    assert runner.gate.is_closed
    assert 16 <= len(seconds) <= 18


def test_an_error_of_a_watch_stops_the_query() -> None:
    spark = EndlessQuery()
    query = running(spark, Runner(), ManualClock())
    looks: list[int] = []

    def look() -> None:
        assert not spark.is_stopped
        looks.append(1)
        if len(looks) == 3:
            raise RetriableError("seen")

    with pytest.raises(RetriableError, match="seen"):
        query.watch(lambda: False, lambda _: None, [look])
    assert spark.is_stopped


def test_a_stop_that_fails_does_not_hide_what_the_query_is_stopped_for() -> None:
    spark = EndlessQuery()
    spark.stop_error = ConnectionRefusedError(111, "Connection refused")

    def look() -> None:
        raise RetriableError("seen")

    with pytest.raises(RetriableError, match="seen"):
        running(spark, Runner(), ManualClock()).watch(lambda: False, lambda _: None, [look])
    assert spark.is_stopped


def test_a_query_that_ends_with_sparks_context_has_not_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = SimpleNamespace(isStopped=lambda: True)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: stopped))
    spark = EndlessQuery()
    spark.is_over = True
    query = running(spark, Runner(), ManualClock())
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    query.watch(lambda: False, lambda _: None, [])
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", context)
    with pytest.raises(RetriableError, match="Spark has ended"):
        query.watch(lambda: False, lambda _: None, [])

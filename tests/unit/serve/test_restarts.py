"""A pipeline that failed is started again later and later, and not forever."""

from __future__ import annotations

from random import Random

import pytest

from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    DeadlineError,
    FencedError,
    InvariantError,
    LineageError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow.pipeline.file.policies import Restart
from onceflow.serve.restarts import Restarts
from tests.support.clock import ManualClock

PASSING = (AbortableError, DeadlineError, OutcomeUnknownError, RetriableError, InvariantError)
PERMANENT = (ConfigError, FencedError, RecordError, LineageError, CorruptionError)


def restart(**written: object) -> Restart:
    return Restart.model_validate({"jitter": 0, **written})


class Pipeline:
    """Fails whenever it is asked to."""

    def __init__(self, policy: Restart, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.restarts = Restarts(policy, self.clock, Random(seed))

    def fail(
        self, error: BaseException | None = None, after_s: float | None = None
    ) -> float | None:
        if after_s is not None:
            self.restarts.note_running()
            self.clock.sleep(after_s)
        return self.restarts.delay_after_s(error or RetriableError("gone"))


def test_delays_grow_up_to_the_longest() -> None:
    pipeline = Pipeline(restart(attempts=6, delay="1 s", multiplier=3, max_delay="20 s"))
    assert [pipeline.fail() for _ in range(7)] == [1, 3, 9, 20, 20, 20, None]
    assert pipeline.restarts.total == 6


@pytest.mark.parametrize("kind", [*PASSING, RuntimeError])
def test_what_may_pass_is_tried_again(kind: type[Exception]) -> None:
    assert Pipeline(restart()).fail(kind("x")) == 1


@pytest.mark.parametrize("kind", PERMANENT)
def test_what_would_fail_alike_never_is(kind: type[OnceflowError]) -> None:
    pipeline = Pipeline(restart())
    assert pipeline.fail(kind("x")) is None
    assert pipeline.restarts.total == 0


def test_a_run_that_lasted_ends_the_row() -> None:
    pipeline = Pipeline(restart(attempts=2, reset_after="1 min"))
    assert [pipeline.fail(), pipeline.fail(after_s=59.9)] == [1, 2]
    assert pipeline.fail(after_s=60) == 1
    assert [pipeline.fail(), pipeline.fail()] == [2, None]


def test_time_before_it_runs_does_not_count() -> None:
    pipeline = Pipeline(restart(reset_after="1 min"))
    pipeline.fail(after_s=1)
    pipeline.clock.sleep(3600)
    assert pipeline.fail() == 2


def test_jitter_spreads_the_delays_around_their_middle() -> None:
    policy = restart(jitter=0.5, delay="10 s")
    delays = [Pipeline(policy, seed).fail() or 0 for seed in range(200)]
    assert 5 <= min(delays) < 6
    assert 14 < max(delays) <= 15
    assert len(set(delays)) == len(delays)


@pytest.mark.parametrize(
    "written",
    [
        {"attempts": -1},
        {"jitter": 1.1},
        {"multiplier": 0.5},
        {"delay": "2 min"},
        {"delay": "9 s", "max_delay": "8 s"},
        {"delay": 5},
        {"delays": "1 s"},
    ],
)
def test_nonsense_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"validation error"):
        restart(**written)

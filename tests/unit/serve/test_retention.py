"""When retention overtakes a pipeline, predicted from looks at it; and when people hear of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import DeadlineError
from onceflow.observe import retention
from onceflow.observe.retention import (
    LOOK_INTERVAL_S,
    Forecast,
    Limits,
    LogSpot,
    Place,
    RetentionGuard,
    forecast,
)
from onceflow.texts import span_text
from tests.support.clock import ManualClock

HOUR_MS = 3_600_000
HOUR_S = 3_600.0
NOW_MS = 1_700_000_000_000
PLACE: Place = ("clicks", 0)
KEEPS_TEN_HOURS = Limits(10 * HOUR_MS, None)
KEEPS_A_SIZE = Limits(None, 1_000_000)


def spot(
    at_ms: int = NOW_MS, age_ms: int = 0, position: int = 100, log_start: int = 0, end: int = 1_000
) -> LogSpot:
    return LogSpot(at_ms, position, log_start, end, at_ms - age_ms)


@pytest.mark.parametrize(
    ("age_then_ms", "left_s"),
    [
        (None, 3 * HOUR_S),
        (6 * HOUR_MS, 3 * HOUR_S),
        (6 * HOUR_MS + HOUR_MS // 2, 6 * HOUR_S),
        (7 * HOUR_MS, None),
        (8 * HOUR_MS, None),
    ],
    ids=["one look", "standing still", "half as quick", "keeping up", "catching up"],
)
def test_time_left_is_that_of_the_record_at_the_position(
    age_then_ms: int | None, left_s: float | None
) -> None:
    spots = [spot(age_ms=7 * HOUR_MS)]
    if age_then_ms is not None:
        spots.insert(0, spot(NOW_MS - HOUR_MS, age_ms=age_then_ms))
    expected = None if left_s is None else Forecast(PLACE, left_s, "retention.ms", 0.3)
    assert forecast(PLACE, KEEPS_TEN_HOURS, spots) == expected


def test_size_overtakes_by_the_movement_of_the_log_s_start() -> None:
    before = spot(NOW_MS - HOUR_MS, position=500, log_start=0)
    now = spot(position=500, log_start=100)
    assert forecast(PLACE, KEEPS_A_SIZE, [before, now]) == Forecast(
        PLACE, 4 * HOUR_S, "retention.bytes", 400 / 900
    )
    quicker = spot(position=650, log_start=100)
    assert forecast(PLACE, KEEPS_A_SIZE, [before, quicker]) is None
    assert forecast(PLACE, KEEPS_A_SIZE, [now]) is None


def test_what_is_gone_is_overtaken_whatever_the_limits() -> None:
    found = forecast(PLACE, Limits(HOUR_MS, None), [spot(position=5, log_start=6)])
    assert found is not None
    assert (found.left_s, found.is_soon) == (0.0, True)
    assert "has overtaken clicks-0" in str(found)
    assert "has overtaken the pipeline" in str(found.warning("pipeline"))


@given(
    retention_ms=st.integers(1, 10**10),
    ages=st.lists(st.integers(0, 10**10), min_size=1, max_size=20),
)
def test_a_forecast_is_never_in_the_past(retention_ms: int, ages: list[int]) -> None:
    spots = [spot(NOW_MS + n * 30_000, age_ms=age) for n, age in enumerate(ages)]
    found = forecast(PLACE, Limits(retention_ms, None), spots)
    assert found is None or (found.left_s >= 0 and 0 <= found.share_left <= 1)


@pytest.mark.parametrize(
    ("left_s", "share", "is_soon"),
    [(23 * HOUR_S, 0.49, True), (25 * HOUR_S, 0.1, False), (HOUR_S, 0.51, False)],
)
def test_soon_is_less_than_a_day_and_less_than_half(
    left_s: float, share: float, is_soon: bool
) -> None:
    assert Forecast(PLACE, left_s, "retention.ms", share).is_soon is is_soon


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({"retention.ms": "60000", "retention.bytes": "-1"}, Limits(60_000, None)),
        ({"retention.ms": "-1", "retention.bytes": "7"}, Limits(None, 7)),
        ({"retention.ms": "60000", "cleanup.policy": "compact"}, Limits(None, None)),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, Limits(60_000, None)),
    ],
)
def test_limits_are_those_that_delete(config: Mapping[str, str], limits: Limits) -> None:
    assert Limits.of(config) == limits


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(119, "119 s"), (120, "2 min"), (7_200, "2 h"), (86_400, "24 h"), (172_800, "2 d")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


class Watch:
    """A guard over looks that a test writes down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(NOW_MS)
        self.told: list[str] = []
        self.looks = 0
        self.seen: Mapping[Place, tuple[Limits, LogSpot]] | None = {}
        self.guard = RetentionGuard(
            cast("Any", None), cast("Any", lambda: None), self.clock, self.told.append
        )
        monkeypatch.setattr(retention, "look", self._look)

    def _look(self, *_: object) -> Mapping[Place, tuple[Limits, LogSpot]]:
        self.looks += 1
        if self.seen is None:
            raise DeadlineError("no answer")
        return self.seen

    def sees(self, age_ms: int, after_s: float = LOOK_INTERVAL_S) -> None:
        self.clock.sleep(after_s)
        self.seen = {PLACE: (KEEPS_TEN_HOURS, spot(self.clock.unix_ms(), age_ms))}
        self.guard()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_looks_are_paced(watch: Watch) -> None:
    for _ in range(11):
        watch.sees(0, after_s=LOOK_INTERVAL_S / 5)
    assert watch.looks == 2


def test_the_first_look_warns_of_nothing_and_the_second_does(watch: Watch) -> None:
    watch.sees(8 * HOUR_MS)
    assert (watch.told, watch.guard.left_s()) == ([], None)
    watch.sees(8 * HOUR_MS + 30_000)
    (told,) = watch.told
    assert told.startswith("clicks-0: retention will overtake the pipeline in 120 min; expected")
    assert watch.guard.left_s() == 2 * HOUR_S - 30


def test_a_warning_is_repeated_when_half_of_the_time_is_over(watch: Watch) -> None:
    step_ms = HOUR_MS // 10
    for age_ms in range(8 * HOUR_MS, 10 * HOUR_MS, step_ms):
        watch.sees(age_ms, after_s=step_ms / 1000)
    # Of the 1.9 h at the second look, and as soon as less than half of the reported time is left.
    told = [text.partition(" in ")[2].partition(";")[0] for text in watch.told]
    assert told == ["114 min", "54 min", "24 min", "6 min"]


def test_who_was_read_to_its_end_meanwhile_is_warned_of_anew(watch: Watch) -> None:
    for age_ms in (8 * HOUR_MS, 8 * HOUR_MS + 30_000):
        watch.sees(age_ms)
    watch.clock.sleep(LOOK_INTERVAL_S)
    watch.seen = {}
    watch.guard()
    assert watch.guard.left_s() is None
    for age_ms in (8 * HOUR_MS, 8 * HOUR_MS + 30_000, 8 * HOUR_MS + 60_000):
        watch.sees(age_ms)
    assert len(watch.told) == 2


def test_brokers_that_do_not_answer_end_nothing(watch: Watch) -> None:
    watch.clock.sleep(LOOK_INTERVAL_S)
    watch.seen = None
    watch.guard()
    watch.guard()
    assert (watch.looks, watch.told) == (1, [])

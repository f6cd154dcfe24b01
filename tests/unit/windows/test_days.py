"""Periods of days in a zone, where its clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.aggregates import Count
from onceflow.processing import ProcessorHarness
from onceflow.windows import Result, TimerWindow
from onceflow.windows.periods import period_around

CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    "Australia/Lord_Howe": ["2026-04-04T15:00", "2026-10-03T15:30"],
    # At midnight: 0:00 does not exist, or 23:00 comes twice.
    "America/Sao_Paulo": ["2018-11-04T03:00", "2019-02-17T02:00"],
    # A minute after midnight, which comes twice.
    "America/St_Johns": ["2010-11-07T02:31"],
    # A day that does not exist.
    "Pacific/Apia": ["2011-12-30T10:00"],
}
"""Instants in UTC."""
MINUTE = timedelta(minutes=1)


@cache
def first_minute(zone: str, day: date) -> datetime:
    """The first one whose clock shows this day or a later one, found by looking at each minute."""
    where, before = ZoneInfo(zone), datetime.combine(day, datetime.min.time(), UTC)
    minutes = (before + n * MINUTE for n in range(-30 * 60, 30 * 60))
    earlier = takewhile(lambda minute: minute.astimezone(where).date() < day, minutes)
    return list(earlier)[-1] + MINUTE


def oracle(at: datetime, zone: str, days: int) -> tuple[datetime, datetime]:
    near = (at.date() - date(1970, 1, 1)).days // days
    for number in range(near + 2, near - 3, -1):
        start, end = (date(1970, 1, 1) + timedelta(days=n * days) for n in (number, number + 1))
        if first_minute(zone, start) <= at:
            return first_minute(zone, start), first_minute(zone, end)
    raise AssertionError(at)


@given(
    st.sampled_from(sorted(CHANGES)), st.integers(0, 1), st.integers(-3000, 3000), st.integers(1, 3)
)
def test_days_are_those_of_the_clocks_in_a_zone(
    zone: str, which: int, minutes: int, days: int
) -> None:
    change = datetime.fromisoformat(CHANGES[zone][which % len(CHANGES[zone])]).replace(tzinfo=UTC)
    at = change + minutes * MINUTE
    assert period_around(at, timedelta(days=days), zone) == oracle(at, zone, days)


class Daily(TimerWindow):
    key = "card"
    every = "1 day"
    zone = "Europe/Berlin"
    n = Result(Count(), of="card")


@pytest.mark.parametrize(("change", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_on_which_clocks_change_has_its_own_length(change: str, hours: int) -> None:
    start = datetime.fromisoformat(change).replace(tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)
    end = start + timedelta(hours=hours)
    harness = ProcessorHarness(Daily, "card string, at timestamp", event_time="at", lateness="1 h")
    edges = [start - timedelta(microseconds=1), start, end - timedelta(microseconds=1), end]
    harness.send(*({"card": "a", "at": at} for at in edges))
    assert harness.advance(end - timedelta(milliseconds=1))[1:] == []
    (row,) = harness.advance(end)
    assert row == {"card": "a", "window_start": start, "window_end": end, "n": 2}

"""Periods of time that follow one another: of a fixed length, or of days in a zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def period_around(at: datetime, every: timedelta, zone: str | None) -> tuple[datetime, datetime]:
    """Start and end of the period that an instant is in; the end is not part of it.

    Args:
        at: the instant.
        every: length, counted from 1970-01-01; whole days if there is a zone.
        zone: where days begin, at the first 0:00 of their clocks. Left out: UTC.

    Returns:
        Instants in UTC.
    """
    if zone is None:
        start = at - (at - _EPOCH) % every
        return start, start + every
    where = ZoneInfo(zone)
    number = (at.astimezone(where).date() - _EPOCH.date()).days // every.days
    # Where a clock is put back over midnight, the first 0:00 comes before the end of the day.
    bounds = [_midnight(n * every.days, where) for n in range(number - 1, number + 3)]
    return next((start, end) for start, end in pairwise(bounds) if start <= at < end)


def _midnight(day: int, where: ZoneInfo) -> datetime:
    """The first 0:00 of a day, as its number since 1970; where it is skipped, the moment it is."""
    start = datetime.combine(date(1970, 1, 1) + timedelta(days=day), time(), where)
    return start.astimezone(UTC)

"""A job whose steps are windows of each kind, each over the rows of the one before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.jobs.cards import CardsJob, Payment, shown

LENGTH = timedelta(seconds=7)
PERIOD = timedelta(seconds=2)
TIMEOUT = timedelta(seconds=12)
WINDOWS = f"""\
from onceflow.aggregates import Max, Sum
from onceflow.windows import (
    CountWindow, Result, RunningTotals, SlidingWindow, StateWindow, TimerWindow
)


class Recent(SlidingWindow):
    key = "card"
    length = "{LENGTH.seconds} s"
    total = Result(Sum("bigint"), of="amount")


class Totals(RunningTotals):
    key = "card"
    total = Result(Sum("bigint"), of="amount")


class Periods(TimerWindow):
    key = "card"
    every = "{PERIOD.seconds} s"
    empty = 1
    total = Result(Sum("bigint"), of="amount")
    largest = Result(Max("bigint"), of="amount")


class Threes(CountWindow):
    key = "card"
    size, every = 3, 2
    total = Result(Sum("bigint"), of="amount")


class Episodes(StateWindow):
    key = "card"
    timeout = "{TIMEOUT.seconds} s"
    total = Result(Sum("bigint"), of="amount")

    def open(self, record):
        return record.amount % 2 == 0

    def close(self, record):
        return record.amount % 4 == 1
"""
STEPS = ("recent", "totals", "periods", "threes", "episodes")
Records = Sequence[tuple[datetime, int]]
Row = tuple[datetime, datetime, int]


@dataclass
class WindowsJob(CardsJob):
    """Payments per card: the sum of each window is the amount that the next step reads."""

    name: str = field(default_factory=lambda: f"windows-{uuid.uuid4().hex[:8]}")

    keeps_failed: bool = False

    @property
    def code(self) -> str:
        return WINDOWS

    def steps(self, module: str) -> str:
        amount = "coalesce(cast(total AS bigint), 0) AS amount"
        inputs = [f"SELECT card, window_end, {amount} FROM {step}" for step in STEPS]
        steps = "\n".join(
            f"  {name}: {{class: '{module}:{name.capitalize()}', input: '{view}',"
            " when: watermark, event_time: window_end}"
            for name, view in zip(STEPS, ["payments", *inputs], strict=False)
        )
        query = f"query: SELECT card, window_start, window_end, {amount} FROM {STEPS[-1]}"
        return f"process:\n{steps}\n{query}"

    def of_card(self, payments: list[Payment], until: datetime) -> Iterator[dict[str, Any]]:
        """All rows: event time is long past the payments."""
        records: Records = [(payment.at, payment.amount) for payment in payments]
        rows: list[Row] = []
        for step in (_recent, _totals, _periods, _threes, _episodes):
            rows = sorted(step(records), key=lambda row: row[1])
            records = [(end, total) for _, end, total in rows]
        for start, end, total in rows:
            yield {
                "card": payments[0].card,
                "window_start": shown(start),
                "window_end": shown(end),
                "amount": total,
            }


def _recent(records: Records) -> Iterator[Row]:
    for at, _ in records:
        yield at - LENGTH, at, sum(n for other, n in records if at - LENGTH < other <= at)


def _totals(records: Records) -> Iterator[Row]:
    for count, (at, _) in enumerate(records, start=1):
        yield records[0][0], at, sum(n for _, n in records[:count])


def _periods(records: Records) -> Iterator[Row]:
    numbers = {at.timestamp() // PERIOD.seconds for at, _ in records}
    for number in numbers | {number + 1 for number in numbers}:
        start = datetime.fromtimestamp(number * PERIOD.seconds, UTC)
        yield start, start + PERIOD, sum(n for at, n in records if start <= at < start + PERIOD)


def _threes(records: Records) -> Iterator[Row]:
    for start in range(0, len(records) - 2, 2):
        window = records[start : start + 3]
        yield window[0][0], window[-1][0], sum(n for _, n in window)


def _episodes(records: Records) -> Iterator[Row]:
    start: datetime | None = None
    total = 0
    for at, amount in records:
        if start and at >= start + TIMEOUT:
            yield start, start + TIMEOUT, total
            start = None
        if start is None:
            start, total = (at, amount) if amount % 2 == 0 else (None, 0)
            continue
        total += amount
        if amount % 4 == 1:
            yield start, at, total
            start = None
    if start:
        yield start, start + TIMEOUT, total

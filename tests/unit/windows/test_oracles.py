"""Each kind of window against an oracle, over random histories, out of order and late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.aggregates import Max, Sum
from onceflow.windows import (
    CountWindow,
    Result,
    RunningTotals,
    SlidingWindow,
    StateWindow,
    TimerWindow,
)
from tests.support.histories import Payment, handled, histories, rows_of

SECOND = timedelta(seconds=1)
WHENS = pytest.mark.parametrize("when", ["arrival", "watermark"])
EXAMPLES = settings(max_examples=50)


def spoken(duration: timedelta | None) -> str | None:
    return None if duration is None else f"{duration // SECOND} seconds"


def result(payments: list[Payment]) -> tuple[Any, ...]:
    """Results that all classes here have."""
    largest = max(((p.amount, p.at) for p in payments), default=None)
    return (sum(p.amount for p in payments) if payments else None), largest


class Results:
    total = Result(Sum("bigint"), of="amount")
    largest = Result(Max("amount bigint, at timestamp"), of=("amount", "at"))


def made(base: type, **choices: Any) -> Any:
    results = {name: each for name, each in vars(Results).items() if isinstance(each, Result)}
    return type("Made", (base,), {"key": "card", **results, **choices})


def without_pauses(payments: list[Payment], ttl: timedelta | None) -> list[list[Payment]]:
    lists: list[list[Payment]] = [[]]
    for payment in payments:
        if ttl and lists[-1] and payment.at >= lists[-1][-1].at + ttl:
            lists.append([])
        lists[-1].append(payment)
    return lists


durations = st.integers(1, 12).map(lambda n: n * SECOND)


@WHENS
@EXAMPLES
@given(histories(), st.integers(1, 6), st.none() | st.integers(1, 8), st.none() | durations)
def test_count_windows_are_slices(
    when: str, batches: Any, size: int, every: int | None, ttl: timedelta | None
) -> None:
    wanted = []
    for card in handled(batches, when):
        for each in without_pauses(card, ttl):
            for start in range(0, len(each) - size + 1, every or size):
                window = each[start : start + size]
                times = [p.at for p in window]
                wanted.append((window[0].card, min(times), max(times), *result(window)))
    kind = made(CountWindow, size=size, every=every, ttl=spoken(ttl))
    assert rows_of(kind, batches, when) == sorted(wanted)


@WHENS
@pytest.mark.parametrize("takes_back", [True, False])
@EXAMPLES
@given(histories(), durations)
def test_sliding_windows_are_the_last_length_of_time(
    when: str, takes_back: bool, batches: Any, length: timedelta
) -> None:
    wanted = []
    for card in handled(batches, when):
        for count, payment in enumerate(card, start=1):
            end = max(p.at for p in card[:count])
            inside = [p for p in card[:count] if end - length < p.at <= end]
            if payment.at > end - length:
                results = result(inside)[: 1 if takes_back else 2]
                wanted.append((payment.card, end - length, end, *results))
    kind = made(SlidingWindow, length=spoken(length), **{"largest": None} if takes_back else {})
    assert rows_of(kind, batches, when) == sorted(wanted)


@WHENS
@EXAMPLES
@given(histories(), st.none() | durations)
def test_state_windows_go_from_open_to_close(
    when: str, batches: Any, timeout: timedelta | None
) -> None:
    def closed(card: list[Payment]) -> Iterator[Any]:
        window: list[Payment] = []
        for payment in [*card, None]:
            now = payment.at if payment else datetime.max.replace(tzinfo=UTC)
            if window and timeout and now >= window[0].at + timeout:
                yield window[0].card, window[0].at, window[0].at + timeout, *result(window)
                window = []
            if payment is None or (not window and payment.amount > 4):
                continue
            window.append(payment)
            if payment.amount == 3 and len(window) > 1:
                times = [p.at for p in window]
                yield payment.card, window[0].at, max(times), *result(window)
                window = []

    class Episodes(StateWindow):
        def open(self, record: Any) -> bool:
            return bool(record.amount <= 4)

        def close(self, record: Any) -> bool:
            return bool(record.amount == 3)

    kind = made(Episodes, timeout=spoken(timeout))
    wanted = [row for card in handled(batches, when) for row in closed(card)]
    assert rows_of(kind, batches, when) == sorted(wanted)


@WHENS
@EXAMPLES
@given(histories(), durations, st.integers(0, 3))
def test_timer_windows_are_periods_of_event_time(
    when: str, batches: Any, every: timedelta, empty: int
) -> None:
    wanted = []
    for card in handled(batches, when):
        periods = {(p.at - datetime(1970, 1, 1, tzinfo=UTC)) // every for p in card}
        for number in {n + more for n in periods for more in range(empty + 1)}:
            start = datetime(1970, 1, 1, tzinfo=UTC) + number * every
            inside = [p for p in card if start <= p.at < start + every]
            wanted.append((card[0].card, start, start + every, *result(inside)))
    kind = made(TimerWindow, every=spoken(every), empty=empty)
    assert rows_of(kind, batches, when) == sorted(wanted)


@WHENS
@EXAMPLES
@given(histories(), st.none() | durations)
def test_running_totals_are_those_of_all_records_so_far(
    when: str, batches: Any, ttl: timedelta | None
) -> None:
    wanted = []
    for card in handled(batches, when):
        for each in without_pauses(card, ttl):
            for count in range(1, len(each) + 1):
                times = [p.at for p in each[:count]]
                wanted.append((each[0].card, min(times), max(times), *result(each[:count])))
    kind = made(RunningTotals, ttl=spoken(ttl))
    assert rows_of(kind, batches, when) == sorted(wanted)

"""Random histories of records in batches, and which of them a processor handles, in which order.

Shares no code with the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from onceflow.processing import ProcessorHarness
from onceflow.processing.processor import Processor

START = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS = timedelta(seconds=8)
END = timedelta(days=400)
COLUMNS = "card string, amount bigint, at timestamp"


class Payment(NamedTuple):
    card: str
    amount: int
    at: datetime


Batches: TypeAlias = Sequence[Sequence[Payment]]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def histories(step: timedelta = timedelta(seconds=1), start: datetime = START) -> Any:
    """Batches of payments, some steps apart: many at one time, out of order, and late."""
    payments = st.builds(
        lambda card, amount, back: (card, amount, back),
        st.sampled_from("ab"),
        st.integers(0, 9),
        st.integers(-14, 8),
    )

    def placed(batches: list[list[tuple[str, int, int]]]) -> Batches:
        now, found = start, []
        for batch in batches:
            now += 4 * step
            found.append([Payment(card, n, now + back * step) for card, n, back in batch])
        return found

    return st.lists(st.lists(payments, max_size=8), max_size=8).map(placed)


def rows_of(kind: type[Processor], batches: Batches, when: Any, **choices: Any) -> list[Any]:
    """Rows that the harness gives, each as a tuple, sorted."""
    options = {"event_time": "at", "lateness": f"{LATENESS.seconds} s", "when": when, **choices}
    harness = ProcessorHarness(kind, COLUMNS, **options)
    for batch in batches:
        harness.send(*(payment._asdict() for payment in batch))
    harness.advance(max((p.at for batch in batches for p in batch), default=START) + END)
    return sorted(tuple(row.values()) for row in harness.rows)


def handled(batches: Batches, when: str, lateness: timedelta = LATENESS) -> list[list[Payment]]:
    """The payments of each card in the order in which they are handled; without late ones."""
    event_watermark = newest = datetime(1970, 1, 1, tzinfo=UTC)
    accepted: list[Payment] = []
    for batch in batches:
        on_time = [payment for payment in batch if payment.at > event_watermark]
        accepted += sorted(on_time, key=lambda payment: payment.at)
        newest = max([newest, *(payment.at for payment in batch)])
        event_watermark = max(event_watermark, newest - lateness)
    if when == "watermark":
        accepted.sort(key=lambda payment: payment.at)
    cards = sorted({payment.card for payment in accepted})
    return [[payment for payment in accepted if payment.card == card] for card in cards]

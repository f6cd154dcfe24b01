"""A job with a processor that keeps state and sets timers, its input and its oracle."""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from onceflow.clock import SystemClock
from tests.faults.history.writes import Expected
from tests.support.jobs.job import Job
from tests.support.jobs.views import BATCH, RECORDS, SECONDS
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic, ordered_producer

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
LATENESS = timedelta(seconds=5)
RECENT = timedelta(seconds=60)
QUIET = timedelta(seconds=20)
BAD = 13
"""An amount that the processor fails on."""
PROCESSOR = f"""\
QUIET_S = 0

from datetime import timedelta

from onceflow.processing import List, Map, Processor, Value


class Cards(Processor):
    key = "card"
    total = Value("n bigint, sum bigint", default=(0, 0))
    recent = List("bigint", ttl="{RECENT.seconds} s")
    shops = Map("string", "bigint")
    output = (
        "card string, what string, n bigint, sum bigint, recent int, shops string, at timestamp"
    )

    def on_records(self, key, records):
        for record in records:
            n, total = self.total.get()
            self.total.set((n + 1, total + record.amount))
            self.recent.append(record.amount)
            self.shops[record.shop] = self.shops.get(record.shop, 0) + record.amount
            self.timers.cancel("quiet")
            self.timers.at(record.at + timedelta(seconds=QUIET_S), "quiet")
            if record.amount == {BAD}:
                raise ValueError("an unlucky amount")
            yield self.told(key, "record", record.at)

    def on_timer(self, key, at, name):
        yield self.told(key, name, at)

    def told(self, key, what, at):
        n, total = self.total.get()
        shops = ",".join(f"{{shop}}={{amount}}" for shop, amount in self.shops.items())
        return key, what, n, total, len(self.recent), shops, at
"""


@dataclass(frozen=True)
class Payment:
    card: str
    shop: str
    amount: int
    at: datetime

    def to_json(self) -> bytes:
        return json.dumps({**vars(self), "at": self.at.isoformat()}).encode()


@dataclass
class CardsJob(Job):
    """Payments per card: totals, what is recent, and a row when a card has been quiet."""

    name: str = field(default_factory=lambda: f"cards-{uuid.uuid4().hex[:8]}")
    produced: list[Payment] = field(default_factory=list)
    when: str = "watermark"
    quiet: timedelta = QUIET
    source: str = ""
    """More lines of the source."""
    keeps_failed: bool = True
    """Records that the processor fails on go to a topic; otherwise they stop the pipeline."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "cards-checkpoint"

    @property
    def input_topic(self) -> str:
        return f"{self.name}-in"

    @property
    def code(self) -> str:
        """The module of its processors."""
        return PROCESSOR.replace("QUIET_S = 0", f"QUIET_S = {self.quiet.seconds}")

    def steps(self, module: str) -> str:
        """The lines of `process` and `query`."""
        return f"""\
process:
  cards:
    class: {module}:Cards
    input: payments
    when: {self.when}
query: SELECT * FROM cards"""

    def write_file(self, batch: int = BATCH, extra: str = "") -> Path:
        module = self.name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(self.code)
        if self.keeps_failed:
            extra += f"dead_letter: {{topic: {self.letter_topic}}}\n"
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  payments:
    kafka: {{topics: [{self.input_topic}], max_records_per_batch: {batch}}}
    schema: "card STRING, shop STRING, amount BIGINT, at TIMESTAMP"
    event_time: at
    lateness: {LATENESS.seconds} seconds
{self.source}
{self.steps(module)}
sink:
  kafka: {{topic: {self.output_topic}, partitions: 2, key: card}}
checkpoint: {self.checkpoint}
{extra}"""
        )
        return path

    def create_input(self) -> None:
        create_topic(self.bootstrap_servers, self.input_topic, 2)

    def produce(
        self, dice: Random, records: int = RECORDS, seconds: int = SECONDS, cards: int = 7
    ) -> None:
        """Add payments in time order up to less than the lateness, of two partitions in turn.

        Second by second after the first lot, as `ViewsJob` does and for the same reason.
        """
        start = max((p.at for p in self.produced), default=FIRST)
        per_second = max(1, records // seconds) if self.produced else None
        payments = [
            Payment(
                f"card-{dice.randrange(cards)}",
                f"shop-{dice.randrange(3)}",
                dice.randrange(20),
                start + timedelta(seconds=number * seconds / records + dice.random() * 4),
            )
            for number in range(records)
        ]
        self.send(payments, per_second)

    def close_windows(self) -> None:
        """One payment an hour later: the event watermark passes everything before it."""
        last = max(p.at for p in self.produced)
        self.send([Payment("end", "end", 0, last + timedelta(hours=1))])

    def send(self, payments: Sequence[Payment], at_a_time: int | None = None) -> None:
        """Add payments as they are; so many are there before the next follow."""
        producer = ordered_producer(self.bootstrap_servers)
        now_ms = SystemClock().unix_ms()
        for sent, payment in enumerate(payments, start=1):
            number = len(self.produced)
            producer.produce(
                self.input_topic, payment.to_json(), partition=number % 2, timestamp=now_ms + number
            )
            producer.poll(0)
            self.produced.append(payment)
            if sent % (at_a_time or len(payments)) == 0:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    def expected(self) -> Iterator[dict[str, Any]]:
        """All rows, once `close_windows` was read; a card by event time, partition and offset."""
        until = max(p.at for p in self.produced) - LATENESS
        by_card: dict[str, list[tuple[datetime, int, int, Payment]]] = {}
        for number, payment in enumerate(self.produced):
            if payment.at <= until:
                place = (payment.at, number % 2, number // 2, payment)
                by_card.setdefault(payment.card, []).append(place)
        for places in by_card.values():
            in_order = [place[-1] for place in sorted(places, key=lambda place: place[:3])]
            yield from self.of_card(in_order, until)

    def of_card(self, payments: list[Payment], until: datetime) -> Iterator[dict[str, Any]]:
        """Rows of one card, once event time has passed an instant."""
        return _of_card(payments[0].card, payments, until, self.quiet)

    def check(self) -> None:
        """The independent check that every fault ends in."""
        found = anomalies(self.written(), self.heads(), Expected.of_rows(self.expected()))
        assert not found, found


def _of_card(
    card: str, payments: list[Payment], until: datetime, quiet: timedelta
) -> Iterator[dict[str, Any]]:
    n = total = 0
    recent: deque[datetime] = deque()
    shops: dict[str, int] = {}
    quiet_at: datetime | None = None

    def row(what: str, at: datetime) -> dict[str, Any]:
        while recent and recent[0] + RECENT <= at:
            recent.popleft()
        told = ",".join(f"{shop}={shops[shop]}" for shop in sorted(shops))
        return {
            "card": card,
            "what": what,
            "n": n,
            "sum": total,
            "recent": len(recent),
            "shops": told,
            "at": shown(at),
        }

    for payment in payments:
        if quiet_at is not None and quiet_at <= payment.at:
            yield row("quiet", quiet_at)
            quiet_at = None
        if payment.amount == BAD:
            continue
        n, total = n + 1, total + payment.amount
        recent.append(payment.at)
        shops[payment.shop] = shops.get(payment.shop, 0) + payment.amount
        quiet_at = payment.at + quiet
        yield row("record", payment.at)
    if quiet_at is not None and quiet_at <= until:
        yield row("quiet", quiet_at)


def shown(at: datetime) -> str:
    """As the output has a timestamp."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"

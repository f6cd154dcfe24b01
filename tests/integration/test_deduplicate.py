"""Duplicates in the input: dropped before the query sees them, and counted to the record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import is_at_rest, run_here, run_until_it_fails, running_here
from tests.support.drivers.service import END_TIMEOUT_S
from tests.support.eventually import eventually
from tests.support.jobs.views import FIRST, View, ViewsJob
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import ordered_producer

SECOND = timedelta(seconds=1)
WINDOW = timedelta(seconds=2)
WITHIN = timedelta(seconds=150)
IDLE_S = 1.0
SETTINGS = f"""lateness: 1 second
    idle_after: {IDLE_S:.0f} second
    deduplicate: {{key: id, within: {WITHIN.seconds} seconds}}"""
TOLD = ("read", "late", "rejected", "duplicates")


@dataclass(frozen=True)
class Event:
    """A view that its producer may have sent more than once."""

    id: str | None
    view: View

    def to_json(self) -> bytes:
        return json.dumps({"id": self.id, **json.loads(self.view.to_json())}).encode()


@dataclass
class EventsJob(ViewsJob):
    """Views per page and window, of a source whose records have an id."""

    def write_file(self, batch: int = 120, extra: str = "") -> Path:
        beside = f"dead_letter: {{topic: {self.name}-dead}}\nlate: {{topic: {self.name}-late}}\n"
        file = super().write_file(batch, beside + extra)
        text = file.read_text()
        for old, new in (
            ('"page STRING', '"id STRING, page STRING'),
            ("'1 minute'", f"'{WINDOW.seconds} seconds'"),
            ("lateness: 5 seconds", SETTINGS),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        file.write_text(text)
        return file

    def send_events(self, events: Sequence[Event]) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        for number, event in enumerate(events):
            partition = number % self.partitions
            producer.produce(self.input_topic, event.to_json(), partition=partition)
        assert producer.flush(30) == 0


@dataclass
class Oracle:
    """The fate of each record, by the topic's content and the ledger's ranges alone.

    A key that was seen stays known until the event watermark passes what it was first seen at by
    `within`. Rows are judged by the event watermark of the batch before.
    """

    job: EventsJob
    known: dict[str, datetime] = field(default_factory=dict)
    windows: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    behind: datetime = FIRST - timedelta(days=1)
    late_in_windows: int = 0

    def follow(self) -> Iterator[tuple[dict[str, Any], Counter[str]]]:
        """Each `head` with the account that its batch should have."""
        records = read_topic(self.job.bootstrap_servers, self.job.input_topic)
        for head in self.job.heads():
            ranges = head["sources"].get("clicks", {}).get(self.job.input_topic, {})
            account = Counter[str]()
            for record in records:
                start, end = ranges.get(str(record.partition), (0, 0))
                if start <= record.offset < end:
                    account += Counter(["read", self._judge(record)])
            self.behind = datetime.fromtimestamp(head["event_watermark_ms"] / 1000, FIRST.tzinfo)
            self.known = {k: until for k, until in self.known.items() if until > self.behind}
            yield head, account

    def _judge(self, record: Written) -> str:
        row = record.row
        at = datetime.fromisoformat(row["at"])
        if row["id"] is None:
            return "rejected"
        if at + WITHIN <= self.behind:
            return "late"
        if row["id"] in self.known:
            return "duplicates"
        self.known[row["id"]] = at + WITHIN
        start = window_of(at)
        if start + WINDOW <= self.behind:
            self.late_in_windows += 1
            return "late"
        self.windows[row["page"], start] += 1
        return "used"


def window_of(at: datetime) -> datetime:
    """Where it begins."""
    return FIRST + (at - FIRST) // WINDOW * WINDOW


def is_over(job: EventsJob, events: Sequence[Event]) -> bool:
    """Whether all windows are closed, and the late records were read."""
    closed = window_of(events[-1].view.at) + WINDOW
    head = job.heads()[-1]
    return bool(
        head["event_watermark_ms"] >= closed.timestamp() * 1000
        and head["totals"]["read"] > len(events) + 150
    )


def originals(dice: Random, count: int, seconds: int) -> list[Event]:
    """In order of time."""
    return [
        Event(
            f"id-{n}",
            View(f"/{dice.randrange(3)}", n % 1000, FIRST + n * seconds * SECOND / count),
        )
        for n in range(count)
    ]


def with_duplicates(dice: Random, events: Sequence[Event]) -> list[Event]:
    """Each third comes again: at once, some records later, or when it is forgotten."""
    placed = [(float(n), event) for n, event in enumerate(events)]
    for n, event in enumerate(events):
        if n % 3 == 0:
            again = n + dice.choice((0.5, 7.5, 90.5, 230.5))
            placed += [(again, event)] * dice.choice((1, 1, 2))
    return [event for _, event in sorted(placed, key=lambda each: each[0])]


def late_ones(dice: Random, events: Sequence[Event]) -> list[Event]:
    """Among duplicates of all ages: some that are new and come too late for their window."""
    first_of_all = events[-1].view.at - WITHIN
    return [
        Event(f"late-{n // 2}", View(f"/{n % 3}", 0, first_of_all + (n // 2) * 3 * SECOND))
        for n in range(60)
    ] + dice.sample(events, 60)


def test_every_record_is_in_the_account_and_duplicates_change_no_window(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """At any distance, among late records and others without a key, over crash and replay.

    In the end the source is silent: ticks close its windows, are in no account, and end although
    keys are still remembered.
    """
    job, dice = EventsJob(broker.bootstrap_servers, tmp_path), Random(10)
    job.create_input()
    file = job.write_file()
    events = originals(dice, 240, 240)
    job.send_events([*with_duplicates(dice, events), *[Event(None, events[0].view)] * 4])
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 3)
    run_here(file, job.bootstrap_servers)
    job.send_events(late_ones(dice, events))
    with running_here(file, job.bootstrap_servers) as running:
        eventually(lambda: is_over(job, events), timeout_s=END_TIMEOUT_S)
        eventually(lambda: is_at_rest(running, IDLE_S), timeout_s=END_TIMEOUT_S)

    oracle, totals = Oracle(job), Counter[str]()
    for head, account in oracle.follow():
        told = {kind: head["records"][kind] for kind in TOLD}
        assert told == {kind: account[kind] for kind in TOLD}, head["batch_id"]
        totals += account
    assert totals["read"] == sum(totals[k] for k in ("used", "late", "rejected", "duplicates"))
    assert {kind: job.heads()[-1]["totals"][kind] for kind in TOLD} == {k: totals[k] for k in TOLD}
    assert totals["duplicates"] > 100
    assert totals["late"] > oracle.late_in_windows > 10
    assert len(read_topic(job.bootstrap_servers, f"{job.name}-late")) == totals["late"]
    assert len(read_topic(job.bootstrap_servers, f"{job.name}-dead")) == totals["rejected"] == 4

    rows = [w.row for w in read_topic(job.bootstrap_servers, job.output_topic)]
    assert Counter({(row["page"], row["start"]): row["views"] for row in rows}) == Counter(
        {
            (page, start.strftime("%Y-%m-%dT%H:%M:%S.000Z")): count
            for (page, start), count in oracle.windows.items()
        }
    )
    assert sum(row["views"] for row in rows) == totals["used"] == len(events)

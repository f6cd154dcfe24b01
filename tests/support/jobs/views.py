"""A small job for tests of faults, its input and its oracle. Shares no code with the product
but its clock."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from onceflow.clock import SystemClock
from tests.faults.history.writes import Expected
from tests.support.jobs.job import Job
from tests.support.outside.history import read_topic
from tests.support.outside.judge import account_faults, anomalies
from tests.support.outside.topics import create_topic, ordered_producer

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
INPUT_PARTITIONS = 2
RECORDS = 6_000
SECONDS = 600
BATCH = 600
"""About ten batches, so that every crash point is reached several times."""


@dataclass(frozen=True)
class View:
    page: str
    ms: int
    at: datetime

    def to_json(self) -> bytes:
        return json.dumps({"page": self.page, "ms": self.ms, "at": self.at.isoformat()}).encode()


@dataclass
class ViewsJob(Job):
    """Views per page and minute, from a topic of its own to a topic of its own."""

    name: str = field(default_factory=lambda: f"views-{uuid.uuid4().hex[:8]}")
    produced: list[View] = field(default_factory=list)
    partitions: int = INPUT_PARTITIONS
    location: str = ""
    """Of the checkpoint, if that is not in the folder."""
    at_one_moment: int = 0
    """Views that share a timestamp of Kafka; 0 if each has that of its arrival. Batches end between
    timestamps: with as many views as a batch holds, only one end is possible."""

    @property
    def input_topic(self) -> str:
        return f"{self.name}-in"

    def write_file(self, batch: int = BATCH, extra: str = "") -> Path:
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  clicks:
    kafka: {{topics: [{self.input_topic}], max_records_per_batch: {batch}}}
    format: json
    schema: "page STRING, ms BIGINT, at TIMESTAMP"
    event_time: at
    lateness: 5 seconds
query: |
  SELECT page, window.start AS start, count(*) AS views, sum(ms) AS total_ms
  FROM clicks GROUP BY page, window(at, '1 minute')
sink:
  kafka: {{topic: {self.output_topic}, partitions: 3, key: page}}
checkpoint: {self.location or self.checkpoint}
{extra}"""
        )
        return path

    def create_input(self) -> None:
        create_topic(self.bootstrap_servers, self.input_topic, self.partitions)

    def produce(self, dice: Random, records: int = RECORDS, seconds: int = SECONDS) -> None:
        """Add views after those that are there, in time order up to the lateness.

        A pipeline that runs must not find one partition a minute ahead of another, whose views
        would truly be late: so whatever comes after the first lot comes second by second.
        """
        start = max((v.at for v in self.produced), default=FIRST)
        per_second = max(1, records // seconds) if self.produced else None
        views = [
            View(
                f"/{dice.randrange(7)}",
                dice.randrange(1000),
                start + timedelta(seconds=i * seconds / records + dice.random() * 4),
            )
            for i in range(records)
        ]
        self.send(views, per_second)

    def close_windows(self) -> None:
        """One view an hour later: every window before it is over."""
        last = max(v.at for v in self.produced)
        self.send([View("/end", 0, last + timedelta(hours=1))])

    def send(self, views: Sequence[View], at_a_time: int | None = None) -> None:
        """Add views as they are; so many are there before the next follow."""
        producer = ordered_producer(self.bootstrap_servers)
        now_ms, together = SystemClock().unix_ms(), self.at_one_moment
        for number, view in enumerate(views, start=1):
            partition = (number - 1) % self.partitions
            # 0 is the client's word for now.
            at_ms = now_ms + (number - 1) // together if together else 0
            producer.produce(self.input_topic, view.to_json(), partition=partition, timestamp=at_ms)
            producer.poll(0)
            if number % (at_a_time or len(views)) == 0:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0
        self.produced += views

    def expected(self) -> list[dict[str, Any]]:
        """Every window that is over once `close_windows` was read."""
        views: Counter[tuple[str, datetime]] = Counter()
        total: Counter[tuple[str, datetime]] = Counter()
        for view in self.produced:
            window = FIRST + (view.at - FIRST) // MINUTE * MINUTE
            views[view.page, window] += 1
            total[view.page, window] += view.ms
        newest = max(view.at for view in self.produced)
        return [
            {
                "page": page,
                "start": window.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "views": views[page, window],
                "total_ms": total[page, window],
            }
            for page, window in views
            if window + MINUTE <= newest - timedelta(seconds=5)
        ]

    def check(self) -> None:
        """The independent check that every fault ends in."""
        written, heads = self.written(), self.heads()
        rows = [w.row for w in written]
        found = anomalies(written, heads, Expected.of_rows(self.expected()))
        assert not found, f"{found}; late by the ledger: {sum(h['records']['late'] for h in heads)}"
        if not any(head["note"] or head["generation"] > 1 for head in heads):
            # A remedy begins another account, or loses a part of the one before.
            faults = account_faults(heads, self.account(rows))
            assert not faults, faults

    def account(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Count the records of the input topic by what became of them; none is late."""
        read = len(read_topic(self.bootstrap_servers, self.input_topic))
        used = sum(row["views"] for row in rows)
        over = sum(row["views"] for row in self.expected())
        still_open = len(self.produced) - over
        return {
            "read": read,
            "late": 0,
            "rejected": read - used - still_open,
            "written": len(rows),
        }

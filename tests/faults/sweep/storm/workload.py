"""The storm's records, its pipeline, and what windows hold. Shares no code with the product."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

WINDOW_MS = 2_000
LATENESS_MS = 10_000
"""The feeder never runs ahead of what is acknowledged by more than half of it: nothing is late."""
PAGES = 30
INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 3
CLOSING_MS = 3_600_000
"""How much later the last records are, which close every window before them."""
END_PAGE = "end"

Cell = tuple[str, int]
"""A page and the begin of a window."""


@dataclass(frozen=True)
class Row:
    """One window of one page; the sum of ids tells which records, not only how many."""

    views: int
    total_ms: int
    total_id: int


def page_of(number: int) -> str:
    # Spread, not in turn: neighbours in one partition would all be of a few pages.
    return f"p{number * 2_654_435_761 % (1 << 32) % PAGES}"


def payload(number: int, at_ms: int, page: str) -> bytes:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return b'{"id":%d,"page":"%s","ms":%d,"at":"%s"}' % (
        number,
        page.encode(),
        number % 997,
        at.encode(),
    )


class Counted:
    """Windows recounted from the input log, record by record."""

    def __init__(self) -> None:
        self._cells: dict[Cell, tuple[int, int, int]] = {}
        self._times_seen: dict[int, int] = {}
        self._seen = bytearray()
        self.records = 0
        self.newest_ms = 0

    def add(self, value: bytes) -> None:
        record = json.loads(value)
        at_ms = round(datetime.fromisoformat(record["at"]).timestamp() * 1000)
        cell = record["page"], at_ms // WINDOW_MS * WINDOW_MS
        views, total_ms, total_id = self._cells.get(cell, (0, 0, 0))
        self._cells[cell] = views + 1, total_ms + record["ms"], total_id + record["id"]
        self.records += 1
        self.newest_ms = max(self.newest_ms, at_ms)
        self._note(record["id"])

    def _note(self, number: int) -> None:
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1 - len(self._seen)))
        if self._seen[number]:
            self._times_seen[number] = self._times_seen.get(number, 1) + 1
        self._seen[number] = 1

    @property
    def repeats(self) -> Mapping[int, int]:
        """Ids that are in the log more than once, and how often: its producer's doing."""
        return self._times_seen

    def missing(self, acknowledged: Iterable[int]) -> list[int]:
        """Ids that were acknowledged and are not in the log: Kafka's doing."""
        return [n for n in acknowledged if n >= len(self._seen) or not self._seen[n]]

    def closed(self) -> dict[Cell, Row]:
        """Every window that is over, by the newest record."""
        over_ms = self.newest_ms - LATENESS_MS
        return {
            (page, start): Row(*sums)
            for (page, start), sums in self._cells.items()
            if start + WINDOW_MS <= over_ms
        }


def cell_and_row(value: bytes) -> tuple[Cell, Row]:
    """One record of the output."""
    found: dict[str, Any] = json.loads(value)
    start = round(datetime.fromisoformat(found["start"]).timestamp() * 1000)
    row = Row(int(found["views"]), int(found["total_ms"]), int(found["total_id"]))
    return (str(found["page"]), start), row


@dataclass(frozen=True)
class Names:
    """Names of one storm's pipeline and topics."""

    pipeline: str

    @property
    def input_topic(self) -> str:
        return f"{self.pipeline}-in"

    @property
    def output_topic(self) -> str:
        return f"{self.pipeline}-out"

    @property
    def ledger(self) -> str:
        return f"onceflow.ledger.{self.pipeline}"


def write_pipeline(names: Names, folder: Path, max_records_per_batch: int) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(
        f"""\
apiVersion: onceflow/v1
name: {names.pipeline}
sources:
  views:
    kafka: {{topics: [{names.input_topic}], max_records_per_batch: {max_records_per_batch}}}
    format: json
    schema: "id BIGINT, page STRING, ms BIGINT, at TIMESTAMP"
    event_time: at
    lateness: {LATENESS_MS // 1000} seconds
query: |
  SELECT page, window.start AS start, count(*) AS views, sum(ms) AS total_ms, sum(id) AS total_id
  FROM views GROUP BY page, window(at, '{WINDOW_MS // 1000} seconds')
sink:
  kafka: {{topic: {names.output_topic}, partitions: {OUTPUT_PARTITIONS}, key: page}}
checkpoint: {folder / "checkpoint"}
"""
    )
    return path

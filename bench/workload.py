"""The workload: the records, the query, and the answer that every engine must give."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from onceflow.errors import CorruptionError

WINDOW_MS = 10_000
LATENESS_MS = 5_000
BACKLOG_START_MS = 1_700_000_000_000
BACKLOG_RECORDS_PER_MS = 20
"""Event time of a backlog: as if it had come in at 20,000 records per second."""

COLUMNS = "ad_id STRING, amount BIGINT, ts BIGINT"
EVENT_TIME = "timestamp_millis(ts)"


class Question(StrEnum):
    """The job of an engine."""

    WINDOWS = "windows"
    """Counts and sums of 1,000 keys in windows."""
    COUNTS = "counts"
    """Without windows, as a processor with one value can do: a result of a key for each batch."""
    FILTER = "filter"
    """Nine of ten records, with one column computed."""


QUERIES = {
    Question.WINDOWS: f"""\
SELECT ad_id, unix_millis(window.start) AS window_ms, count(*) AS records, sum(amount) AS total
FROM events
GROUP BY ad_id, window(_event_time, '{WINDOW_MS // 1000} seconds')
""",
    Question.COUNTS: """\
SELECT ad_id, count(*) AS records, sum(amount) AS total
FROM events
GROUP BY ad_id
""",
    Question.FILTER: """\
SELECT ad_id, amount * 2 AS doubled, ts
FROM events
WHERE amount % 10 <> 0
""",
}
AMOUNTS = 1_000
"""Different ones, in the order of records."""
_KNUTH = 2_654_435_761
"""Multiplier that spreads consecutive numbers over the keys without a random generator."""

Cell: TypeAlias = tuple[str, int]
"""Key and start of a window in milliseconds; 0 if there are no windows."""


@dataclass(frozen=True)
class Workload:
    """Which records are written."""

    keys: int
    partitions: int

    def record(self, number: int, at_ms: int) -> Record:
        """The record of that number, if it happens at that time."""
        chosen = (number * _KNUTH >> 12) % self.keys
        return Record(chosen % self.partitions, f"a{chosen}", number % AMOUNTS, at_ms)


@dataclass(frozen=True, slots=True)
class Record:
    """One input record. All records of a key are in one partition, in order."""

    partition: int
    key: str
    amount: int
    at_ms: int

    def payload(self) -> bytes:
        """About 90 bytes of JSON, of which the query reads three fields of six."""
        return (
            b'{"user_id":"u%d","page_id":"p%d","ad_id":"%b","event_type":"view","amount":%d,"ts":%d}'
            % (self.amount * 7, self.amount % 77, self.key.encode(), self.amount, self.at_ms)
        )


def backlog_time_ms(number: int) -> int:
    """When the record of that number of a backlog happened."""
    return BACKLOG_START_MS + number // BACKLOG_RECORDS_PER_MS


@dataclass(frozen=True)
class Result:
    """One record of the output."""

    cell: Cell
    records: int
    total: int

    @classmethod
    def from_payload(cls, payload: bytes) -> Result:
        """Decode."""
        row = json.loads(payload)
        return cls((row["ad_id"], row.get("window_ms", 0)), row["records"], row["total"])


@dataclass
class Oracle:
    """Computes the answer from the records themselves, without Spark.

    Args:
        has_windows: counts by key and window, or else by key.
    """

    has_windows: bool = True
    answer: dict[Cell, tuple[int, int]] = field(default_factory=dict)
    newest_ms: int = 0

    def add(self, record: Record) -> Cell:
        """Take in one record; returns where it belongs."""
        start_ms = record.at_ms - record.at_ms % WINDOW_MS if self.has_windows else 0
        cell = (record.key, start_ms)
        self._add(cell, 1, record.amount)
        self.newest_ms = max(self.newest_ms, record.at_ms)
        return cell

    def by_key(self) -> Oracle:
        """The answer to the same records, without windows."""
        found = Oracle(has_windows=False, newest_ms=self.newest_ms)
        for (key, _), answer in self.answer.items():
            found._add((key, 0), *answer)
        return found

    def _add(self, cell: Cell, records: int, total: int) -> None:
        before = self.answer.get(cell, (0, 0))
        self.answer[cell] = (before[0] + records, before[1] + total)

    def check_final(self, results: Iterable[Result]) -> None:
        """Each window that is surely closed once, and no other value anywhere."""
        found: dict[Cell, tuple[int, int]] = {}
        for result in results:
            if result.cell in found:
                raise _wrong(result.cell, "one result", "another one")
            found[result.cell] = (result.records, result.total)
        closed_ms = self.newest_ms - LATENESS_MS - WINDOW_MS
        for cell, expected in self.answer.items():
            if cell not in found and cell[1] > closed_ms:
                continue
            if found.get(cell) != expected:
                raise _wrong(cell, expected, found.get(cell))
        if extra := found.keys() - self.answer.keys():
            raise _wrong(min(extra), None, found[min(extra)])

    def check_updates(self, results: Iterable[Result]) -> None:
        """Counts only rise, and the last result of every window is its answer."""
        found: dict[Cell, tuple[int, int]] = {}
        for result in results:
            before, _ = found.get(result.cell, (0, 0))
            if result.records <= before:
                raise _wrong(result.cell, f"more than {before} records", result.records)
            found[result.cell] = (result.records, result.total)
        for cell in self.answer.keys() | found.keys():
            if found.get(cell) != self.answer.get(cell):
                raise _wrong(cell, self.answer.get(cell), found.get(cell))


def check_filtered(payloads: Iterable[bytes], workload: Workload, records: int) -> None:
    """Nine of ten of the first `records` of a backlog came out once each, and nothing else did."""
    seen = bytearray(records)
    for payload in payloads:
        row = json.loads(payload)
        first = (row["ts"] - BACKLOG_START_MS) * BACKLOG_RECORDS_PER_MS
        # The amount tells which of the records of that millisecond it is.
        number = first + (row["doubled"] // 2 - first) % AMOUNTS
        wanted = workload.record(number, row["ts"])
        if row != {
            "ad_id": wanted.key,
            "doubled": wanted.amount * 2,
            "ts": backlog_time_ms(number),
        }:
            raise _wrong((row["ad_id"], row["ts"]), "a row of the backlog", row)
        if wanted.amount % 10 == 0 or number >= records or seen[number]:
            raise _wrong((row["ad_id"], row["ts"]), "each row that passes once", row)
        seen[number] = 1
    expected = sum(number % AMOUNTS % 10 != 0 for number in range(records))
    if sum(seen) != expected:
        raise _wrong(("", 0), f"{expected} rows", sum(seen))


def _wrong(cell: Cell, expected: object, found: object) -> CorruptionError:
    return CorruptionError(
        "the output differs from the oracle's answer",
        subject=f"key {cell[0]}, window at {cell[1]}",
        expected=str(expected),
        found=str(found),
        then="no figure of this run counts",
    )

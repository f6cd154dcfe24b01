"""Trades with names from a file and titles from a topic, both changed in mid-run, and an oracle.

The oracle takes from the ledger which version each batch had, and computes each batch again: from
the files that were written here, by their SHA-256, and from the records that were produced here, by
their offsets. It shares no code with the product.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from onceflow.clock import SystemClock
from tests.support.jobs.job import Job
from tests.support.outside.topics import create_topic, ordered_producer

SYMBOLS = ("GOOGL", "AAPL", "F", "X")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 60

Row = tuple[str | None, str | None]
"""The name and the title of a trade."""


@dataclass
class NamesJob(Job):
    """Each trade with what the references of its batch say of it."""

    name: str = field(default_factory=lambda: f"named-{uuid.uuid4().hex[:8]}")
    trades: list[tuple[str, datetime]] = field(default_factory=list)
    files: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """SHA-256 -> names by symbol, of every file that ever was."""
    records: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    """Key and value of each record of the topic, by offset."""
    changes: int = 0

    @property
    def input_topic(self) -> str:
        return f"{self.name}-in"

    @property
    def titles_topic(self) -> str:
        return f"{self.name}-titles"

    @property
    def names_file(self) -> Path:
        return self.folder / "names.csv"

    def create_input(self) -> None:
        create_topic(self.bootstrap_servers, self.input_topic, 1)
        compacted = {"cleanup.policy": "compact"}
        create_topic(self.bootstrap_servers, self.titles_topic, 1, compacted)

    def write_file(self, batch: int = 20, names: str = "name STRING") -> Path:
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  trades:
    kafka: {{topics: [{self.input_topic}], max_records_per_batch: {batch}}}
    schema: "id BIGINT, symbol STRING, at TIMESTAMP"
    event_time: at
    lateness: 1 hour
references:
  names:
    file: {self.names_file.name}
    schema: "symbol STRING, {names}"
    key: symbol
    every: 50 ms
  titles:
    topic: {self.titles_topic}
    schema: "symbol STRING, title STRING, since TIMESTAMP"
    key: symbol
    valid_from: since
    every: 50 ms
query: |
  SELECT t.id, n.name, s.title
  FROM trades t
  LEFT JOIN names n ON t.symbol = n.symbol
  LEFT JOIN titles s ON t.symbol = s.symbol AND t.at >= s.since AND t.at < s.valid_until
sink:
  kafka: {{topic: {self.output_topic}, partitions: 1}}
checkpoint: {self.checkpoint}
"""
        )
        return path

    def produce(self, random: Random, count: int = 20) -> None:
        new = [
            (random.choice(SYMBOLS), FIRST + timedelta(seconds=random.randrange(DAYS * 86_400)))
            for _ in range(count)
        ]
        self.trade(*new)

    def trade(self, *trades: tuple[str, datetime]) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        # One time for all: a batch may end early where the time changes (`cut.GOOD_FILL`).
        now_ms = SystemClock().unix_ms()
        for symbol, at in trades:
            trade = {"id": len(self.trades), "symbol": symbol, "at": at.isoformat()}
            self.trades.append((symbol, at))
            content = json.dumps(trade).encode()
            producer.produce(self.input_topic, content, partition=0, timestamp=now_ms)
        assert producer.flush(30) == 0

    def write_names(self, names: Mapping[str, str]) -> str:
        """Replace the file by a rename; returns its SHA-256."""
        lines = [f"{symbol},{name}\n" for symbol, name in names.items()]
        content = "".join(["symbol,name\n", *lines]).encode()
        new = self.names_file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(self.names_file)
        digest = hashlib.sha256(content).hexdigest()
        self.files[digest] = dict(names)
        return digest

    def tell(self, key: str, value: dict[str, Any] | None) -> None:
        """Produce a record of the other reference."""
        producer = ordered_producer(self.bootstrap_servers)
        content = None if value is None else json.dumps(value).encode()
        producer.produce(self.titles_topic, content, key=key, partition=0)
        assert producer.flush(30) == 0
        self.records.append((key, value))

    def change(self, random: Random) -> None:
        """Change both, each to what it never was: add, replace and delete."""
        self.changes += 1
        held = random.sample(SYMBOLS, 3)
        self.write_names({symbol: f"{symbol} {self.changes}" for symbol in held})
        symbol, day = random.choice(SYMBOLS), random.randrange(DAYS)
        since = (FIRST + timedelta(days=day)).isoformat()
        title = {"symbol": symbol, "title": f"title {self.changes}", "since": since}
        self.tell(f"{symbol}-{day}", title)
        if self.changes % 2 == 0:
            self.tell(random.choice(self.records)[0], None)

    def _titles(self, of: str) -> list[tuple[str, datetime, str]]:
        """Rows as of the next offset of the only partition, oldest first."""
        partition, _, end = of.partition(":")
        assert partition == "0"
        rows: dict[str, dict[str, Any]] = {}
        for key, value in self.records[: int(end)]:
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        found = [
            (row["symbol"], datetime.fromisoformat(row["since"]), row["title"])
            for row in rows.values()
        ]
        return sorted(found)

    def expected(self) -> dict[int, Row]:
        """Trade -> its name and title, in the version that the ledger has for its batch."""
        found: dict[int, Row] = {}
        for head in self.heads():
            # One with a note repeats a position, such as that which a fork begins from.
            if head["batch_id"] < 0 or head["note"]:
                continue
            versions = head["references"]
            names = self.files[versions["names"]["of"]]
            titles = self._titles(versions["titles"]["of"])
            (ranges,) = head["sources"]["trades"].values()
            for offset in range(*ranges["0"]):
                symbol, at = self.trades[offset]
                valid = [title for of, since, title in titles if of == symbol and since <= at]
                found[offset] = names.get(symbol), valid[-1] if valid else None
        return found

    def check(self) -> None:
        """Each trade is there once, as the oracle says."""
        rows = [each.row for each in self.written()]
        assert len(rows) == len(self.trades)
        assert {r["id"]: (r["name"], r["title"]) for r in rows} == self.expected()

    def has_seen_all(self) -> bool:
        """Whether the last batch has both references as they are now.

        Records that change no row, such as a second deletion, make no version.
        """
        names, titles = self.versions()[-1]
        newest = f"0:{len(self.records)}"
        return names == [*self.files][-1] and self._titles(titles) == self._titles(newest)

    def versions(self) -> list[tuple[str, str]]:
        """Return those of both references, batch after batch."""
        heads = [head["references"] for head in self.heads() if head["batch_id"] >= 0]
        return [(each["names"]["of"], each["titles"]["of"]) for each in heads]

    def kept(self) -> int:
        """How many versions the checkpoint has."""
        return len([*(self.checkpoint / "references").glob("*.arrow")])

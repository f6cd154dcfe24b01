"""A job without state, whose output must be in the order of its input. Shares no code with the
product."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

from tests.support.jobs.job import Job
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic, ordered_producer

INPUT = {"orders": 3, "returns": 2}
"""Topic -> partitions. Every key is in all of them."""
STATES = ("created", "paid", "sent", "a", "Z", "")
"""In an order of their own: sorted, they would come out otherwise."""
STATELESS = """\
  SELECT id, name, number, place, state, piece FROM (
    SELECT * FROM orders UNION ALL SELECT * FROM returns
  ) LEFT JOIN VALUES (0, 'zero'), (0, 'null'), (1, 'one') AS names(code, name) ON number % 5 = code
  LATERAL VIEW explode(split(state, '')) pieces AS piece
  WHERE state != 'sent'"""
"""What may multiply and drop rows, and must not move any."""


@dataclass
class OrdersJob(Job):
    """Steps of orders, from two topics to one."""

    produced: list[dict[str, Any]] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "orders-checkpoint"

    def topic(self, source: str) -> str:
        return f"{self.name}-{source}"

    def write_file(self, query: str = STATELESS, sink: str = "", extra: str = "") -> Path:
        schema = "id STRING, number INT, place STRING, state STRING, at TIMESTAMP"
        sources = "".join(
            f"""\
  {source}:
    kafka: {{topics: [{self.topic(source)}], max_records_per_batch: 90}}
    schema: "{schema}"
    event_time: at
    lateness: 1 hour
"""
            for source in INPUT
        )
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"apiVersion: onceflow/v1\nname: {self.name}\nsources:\n{sources}"
            f"query: |\n{query}\n"
            f"sink:\n  kafka: {{topic: {self.output_topic}, partitions: 2, key: id}}\n{sink}\n"
            f"checkpoint: {self.checkpoint}\n{extra}"
        )
        return path

    def create_input(self) -> None:
        for source, partitions in INPUT.items():
            create_topic(self.bootstrap_servers, self.topic(source), partitions)

    def produce(self, dice: Random, records: int) -> None:
        """Many of each key in each partition."""
        producer = ordered_producer(self.bootstrap_servers)
        for _ in range(records):
            source = dice.choice([*INPUT])
            partition = dice.randrange(INPUT[source])
            step = {
                "id": f"order-{dice.randrange(4)}",
                "number": len(self.produced),
                "place": f"{source}-{partition}",
                "state": dice.choice(STATES),
                "at": f"2026-03-01T00:{dice.randrange(60):02}:00Z",
            }
            producer.produce(self.topic(source), json.dumps(step), partition=partition)
            self.produced.append(step)
        assert producer.flush(30) == 0

    def expected(self) -> Iterable[dict[str, Any]]:
        """Output expected of STATELESS, in the order of each input partition."""
        names: Mapping[int, Sequence[str | None]] = {0: ["zero", "null"], 1: ["one"]}
        for step in self.produced:
            if step["state"] == "sent":
                continue
            for name in names.get(step["number"] % 5, [None]):
                for piece in step["state"] or [""]:
                    kept = {k: v for k, v in step.items() if k != "at"}
                    yield {**kept, "name": name, "piece": piece}

    def check_order(self) -> None:
        """Each record of STATELESS is there, and those of a key stand as in their partition."""
        written = self.written()
        assert anomalies(written) == []
        found = _by_key_and_place(each.row for each in written)
        expected = _by_key_and_place(self.expected())
        assert found.keys() == expected.keys()
        for place, rows in expected.items():
            assert found[place] == rows


def _by_key_and_place(rows: Iterable[dict[str, Any]]) -> Mapping[tuple[str, str], Any]:
    """Rows of each key and input partition as they come; matches of one record in any order."""
    found = defaultdict(list)
    for _, of_record in groupby(rows, key=itemgetter("place", "number")):
        for row in sorted(of_record, key=lambda row: str(row["name"])):
            found[row["id"], row["place"]].append(row)
    return found

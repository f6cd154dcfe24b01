"""A pipeline that copies records, for tests of what becomes of its output. No oracle is needed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onceflow.clock import SystemClock
from tests.support.jobs.job import Job
from tests.support.outside.topics import create_topic, delete_before, ordered_producer

OUTPUT_PARTITIONS = 2
BATCH = 100


@dataclass
class CopyJob(Job):
    """Copies values of input topics, each with a key of its own."""

    name: str = field(default_factory=lambda: f"copy-{uuid.uuid4().hex[:8]}")
    checkpoints: int = 1
    produced: dict[str, int] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.checkpoints}"

    def input_topic(self, letter: str = "a") -> str:
        return f"{self.name}-in-{letter}"

    def create_input(self, letter: str = "a") -> None:
        create_topic(self.bootstrap_servers, self.input_topic(letter))

    def write_file(self, extra: str = "") -> Path:
        """The file of the pipeline; it reads every input topic there ever is."""
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  rows:
    kafka: {{pattern: "{self.name}-in-.", max_records_per_batch: {BATCH}}}
    format: json
    schema: "k STRING, v STRING"
query: |
  SELECT k, v FROM rows
sink:
  kafka: {{topic: {self.output_topic}, partitions: {OUTPUT_PARTITIONS}, key: k}}
checkpoint: {self.checkpoint}
{extra}"""
        )
        return path

    def produce(self, name: str, count: int, letter: str = "a", key: str = "") -> list[str]:
        """Rows of this name, each of a key of its own if none is given; returns their values."""
        producer = ordered_producer(self.bootstrap_servers)
        values = [f"{name}-{number}" for number in range(count)]
        # One time for all: a batch may end early where the time changes (`cut.GOOD_FILL`).
        now_ms = SystemClock().unix_ms()
        for value in values:
            text = f'{{"k": "{key or value}", "v": "{value}"}}'
            producer.produce(self.input_topic(letter), text.encode(), partition=0, timestamp=now_ms)
            producer.poll(0)
        assert producer.flush(30) == 0
        self.produced[letter] = self.produced.get(letter, 0) + count
        return values

    def forget_input(self) -> None:
        """Delete all input produced so far, as retention does."""
        for letter, count in self.produced.items():
            delete_before(self.bootstrap_servers, self.input_topic(letter), 0, count)

    def values(self) -> list[str]:
        """Values of all records in the output."""
        return values_of([w.value for w in self.written()])


def values_of(payloads: Sequence[bytes | None]) -> list[str]:
    """The values in the payloads of records, sorted."""
    return sorted(json.loads(payload or b"{}")["v"] for payload in payloads)

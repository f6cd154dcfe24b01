"""Common parts of all jobs of tests: a folder, names in Kafka, and the results there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.outside.history import Written, read_ledger, read_topic


@dataclass
class Job:
    """A pipeline, its input and its oracle."""

    bootstrap_servers: str
    folder: Path
    name: str

    @property
    def output_topic(self) -> str:
        return f"{self.name}-out"

    @property
    def letter_topic(self) -> str:
        return f"{self.name}-rejected"

    @property
    def ledger_topic(self) -> str:
        return f"onceflow.ledger.{self.name}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def written(self) -> list[Written]:
        return read_topic(self.bootstrap_servers, self.output_topic)

    def heads(self) -> list[dict[str, Any]]:
        return read_ledger(self.bootstrap_servers, self.name)

    def read(self) -> int:
        """Records that all committed batches together have read."""
        return sum(head["records"]["read"] for head in self.heads())

"""A whole history."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.history import store
from tests.faults.history.model import (
    Attempt,
    FinalPartition,
    Input,
    Isolation,
    OpenTransaction,
    Place,
    Probe,
    Reader,
)


@dataclass
class History:
    """Everything that was seen from outside while a pipeline ran under faults.

    Args:
        pipeline: whose ledger and headers are looked at; None: there is no ledger.
        inputs: sent; those that were acknowledged may have been left out.
        final: after quiesce, of the output topic and the ledger.
        transactions: open after quiesce, of this pipeline or on its topics.
    """

    output_topic: str
    pipeline: str | None = None
    inputs: list[Input] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    final: dict[Place, FinalPartition] = field(default_factory=dict)
    transactions: list[OpenTransaction] = field(default_factory=list)

    @property
    def ledger_topic(self) -> str | None:
        """The pipeline's ledger topic, by its published name."""
        return None if self.pipeline is None else f"onceflow.ledger.{self.pipeline}"

    def save(self, folder: Path) -> None:
        """Write it as JSON lines, to be looked at afterwards; `folder` is made if need be."""
        store.save(self, folder)

    @classmethod
    def load(cls, folder: Path) -> History:
        """Read what `save` wrote."""
        output_topic, pipeline = store.load_names(folder)
        history = cls(output_topic, pipeline)
        store.load(history, folder)
        return history

    def outputs(self) -> list[FinalPartition]:
        """The partitions of the output topic."""
        return self._of(self.output_topic)

    def ledger(self) -> list[FinalPartition]:
        """The partitions of the ledger; empty if there is none."""
        return [] if self.ledger_topic is None else self._of(self.ledger_topic)

    def readers_at(self, isolation: Isolation) -> list[Reader]:
        """Those that read at this level."""
        return [reader for reader in self.readers if reader.isolation is isolation]

    def _of(self, topic: str) -> list[FinalPartition]:
        return [self.final[place] for place in sorted(self.final) if place[0] == topic]

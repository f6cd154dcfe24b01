"""Whether the history of a pipeline's output is whole: no repeat, no gap, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow.cli.tail import ANSWER_TIMEOUT_S, IDLE_PAUSE_S, TopicTail
from onceflow.clock import Deadline
from onceflow.contracts.connector import ReadRecord
from onceflow.contracts.sink import Ledger
from onceflow.errors import ConfigError, CorruptionError
from onceflow.protocol.identity import DRIVER_SLOT, pipeline_tag
from onceflow.protocol.ledger import HeadEntry
from onceflow_connectors.consumer.admission import (
    Admission,
    Counters,
    Divergence,
    Gap,
    Hooks,
    LineageChange,
    OnFault,
    OnForeign,
    Rules,
)
from onceflow_connectors.consumer.filter import PartitionFilter
from onceflow_connectors.consumer.records import Record

MARKER_WAIT_S = 10.0
"""The ledger may show a commit milliseconds before every output partition does."""
MAX_FINDINGS = 20
"""Gaps and divergences that are kept for the report; all are counted."""

_TOLERANT = Rules(
    gap=OnFault.REPORT,
    divergence=OnFault.REPORT,
    foreign=OnForeign.DELIVER,
    new_lineage=OnFault.REPORT,
)


@dataclass
class Verification:
    """One look at everything that is in a topic, through the filter that consumers use.

    Args:
        tail: of the output topic, at its beginning.
        ledger: of the pipeline.
        pipeline: that wrote the topic.
        is_ledger_required: whether somebody named the pipeline, so that its ledger must exist.
    """

    tail: TopicTail
    ledger: Ledger
    pipeline: str
    is_ledger_required: bool
    counters: Counters = field(default_factory=Counters)
    findings: list[str] = field(default_factory=list)
    head: HeadEntry | None = None
    _filters: dict[int, PartitionFilter] = field(default_factory=dict)

    def records(self) -> Iterator[ReadRecord]:
        """Each record once, up to what the ledger says is committed.

        Raises:
            ConfigError: the pipeline writes to another topic, or has no ledger and must have one.
        """
        self.head = self._read_head()
        hooks = Hooks(
            on_gap=self._on_gap,
            on_divergence=self._on_divergence,
            on_new_lineage=self._on_new_lineage,
        )
        admission = Admission(_TOLERANT, hooks, self.counters)
        patience = Deadline.after(self.tail.clock, MARKER_WAIT_S)
        while True:  # until nothing that the ledger knows is missing, or patience ends
            for record in self.tail.to_end():
                part = self._filters.setdefault(record.partition, PartitionFilter())
                if admission.admit(_as_consumed(self.tail.topic, record), part):
                    yield record
            if not self._missing() or patience.is_over:
                return
            self.tail.clock.sleep(IDLE_PAUSE_S)

    def summary(self) -> Mapping[str, Any]:
        """What was found, for the report."""
        ledger = "absent" if self.head is None else "behind" if self._missing() else "agrees"
        return {
            "topic": self.tail.topic,
            "records": self.counters.delivered,
            "repeats_discarded": self.counters.discarded,
            "gaps": self.counters.gaps,
            "divergences": self.counters.divergences,
            "foreign": self.counters.foreign,
            "new_lineages": self.counters.new_lineages,
            "ledger": ledger,
        }

    def check(self) -> None:
        """Go on only if the history is whole.

        Raises:
            CorruptionError: records are missing or contradict one another.
        """
        findings = [*self.findings, *self._missing()]
        if findings:
            raise CorruptionError(
                "the output is not whole",
                subject=self.tail.topic,
                expected="every sequence of the ledger once",
                found="; ".join(findings[:MAX_FINDINGS]),
                then="retention and compaction remove records, too; otherwise keep the evidence",
            )

    def _read_head(self) -> HeadEntry | None:
        deadline = Deadline.after(self.tail.clock, ANSWER_TIMEOUT_S)
        if not self.ledger.exists(deadline):
            if self.is_ledger_required:
                raise ConfigError("this pipeline has no ledger", subject=self.pipeline)
            return None
        head = self.ledger.read_head(DRIVER_SLOT, deadline)
        if head is not None and head.sink.topic != self.tail.topic:
            raise ConfigError(
                "this pipeline writes to another topic",
                subject=self.pipeline,
                expected=head.sink.topic,
                found=self.tail.topic,
                then="name the pipeline with --pipeline",
            )
        return head

    def _missing(self) -> list[str]:
        """Partitions whose last committed record was not seen."""
        if self.head is None:
            return []
        tag = pipeline_tag(self.pipeline)
        missing = []
        for partition, (_, last) in sorted(self.head.sink.sequence.items()):
            seen = self._filters.get(partition, PartitionFilter()).track(tag).high_water
            if seen < last and not self.tail.is_emptied(partition):
                missing.append(f"partition {partition} ends at {seen}, the ledger at {last}")
        return missing

    def _on_gap(self, gap: Gap) -> None:
        self._keep(f"{gap.record}: sequences {gap.first_missing} to {gap.last_missing} missing")

    def _on_divergence(self, found: Divergence) -> None:
        self._keep(f"{found.record}: contradicts what was written up to {found.high_water}")

    def _on_new_lineage(self, found: LineageChange) -> None:
        self._keep(
            f"{found.record}: the pipeline began again at sequence 1, after {found.high_water}"
        )

    def _keep(self, finding: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


def _as_consumed(topic: str, record: ReadRecord) -> Record:
    return Record(
        topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
    )

"""Records that a delivery has read and not yet given to its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onceflow.contracts.connector import Place
from onceflow.contracts.record import Record
from onceflow.delivery.rejects import Dropped


@dataclass
class Pending:
    """Records that were read and not written yet."""

    records: list[Record] = field(default_factory=list)
    dropped: dict[Place, Dropped] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, records: Sequence[Record]) -> None:
        """Keep records."""
        self.records += records
        self.size_bytes += sum(len(record.value or b"") for record in records)

    def drop(self, record: Record) -> None:
        """Leave a record out, and remember that."""
        before = self.dropped.get((record.topic, record.partition))
        if before is None:
            self.dropped[record.topic, record.partition] = Dropped(record, record)
        else:
            before.last = record
            before.count += 1

    @property
    def dropped_count(self) -> int:
        """Records that were left out."""
        return sum(each.count for each in self.dropped.values())

    def __len__(self) -> int:
        return len(self.records) + self.dropped_count

    def without_partitions(self, lost: frozenset[Place]) -> Pending:
        """The same without the records of these partitions."""
        kept = Pending(
            dropped={place: each for place, each in self.dropped.items() if place not in lost}
        )
        kept.add([each for each in self.records if (each.topic, each.partition) not in lost])
        return kept

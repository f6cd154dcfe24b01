"""The contract of what a carrier reads from: a consumer, or the dead letters of a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onceflow.contracts.record import Record
from onceflow_connectors.consumer import Counters, Partition, Position


class RecordReader(Protocol):
    """Yields each record once. `FilteringConsumer` says more of each method."""

    counters: Counters

    def take(self, most: int, timeout_s: float) -> Sequence[Record]:
        """The next records, `most` of them or fewer; none if none came in time."""

    def take_positions(self) -> Sequence[Position]:
        """Positions of all partitions that moved since this was last called."""

    def position(self, topic: str, partition: int) -> Position:
        """The position of one partition after the last record that was read."""

    def next_offset(self, topic: str, partition: int) -> int | None:
        """The next offset to read of a partition."""

    def assignment(self) -> Sequence[Partition]:
        """The partitions that are read at the moment."""

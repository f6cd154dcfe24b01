"""What the conformance kit needs of an origin, and how it reads one through a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.contracts.source import Position, Source, Split

Record: TypeAlias = tuple[bytes, bytes]
"""Key and value."""
Values: TypeAlias = Mapping[int, Sequence[bytes]]
"""partition -> values of its records, in order."""

SETTLE_TIMEOUT_S = 30.0
"""For what was written to become visible: origins may be distributed."""
SETTLE_POLL_S = 0.05
MAX_BATCHES = 1000
"""A source that never comes to rest must not hang its test."""
VALUE_COLUMN = "value"


class NonconformanceError(AssertionError):
    """A source broke a promise. Says which, and how."""


class Feature(Enum):
    """What not every origin can do."""

    TRANSACTIONS = "transactions"
    COMPACTION = "compaction"
    RETENTION = "retention"
    IDENTITY = "identity of topics"
    GROWTH = "growing number of partitions"


class Transaction(Protocol):
    """Records that were written and are not decided."""

    def commit(self) -> None:
        """Make them visible."""

    def abort(self) -> None:
        """Make them void for ever."""


class Origin(Protocol):
    """An origin that a test can write to. Begins with partitions 0 and 1, which are empty."""

    @property
    def features(self) -> frozenset[Feature]:
        """What it can do; the methods below that need another feature are not called."""

    def source(self) -> Source:
        """A fresh source that reads all of it from the beginning.

        With one column, `value` BINARY: the payload. With a lateness, so that a backlog is read
        evenly.
        """

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """Write records that are visible at once."""

    def begin(self, partition: int, records: Sequence[Record]) -> Transaction:
        """Write records in a transaction of their own and leave it open. Needs TRANSACTIONS."""

    def compact(self) -> None:
        """Drop every record that has a newer one of its key, offsets stay. Needs COMPACTION."""

    def delete_before(self, partition: int, offset: int) -> None:
        """Drop the oldest offsets, as retention does. Needs RETENTION."""

    def recreate(self) -> None:
        """Delete everything; begin again under the same name, empty. Needs IDENTITY."""

    def add_partition(self) -> int:
        """Add an empty one and return its number. Needs GROWTH."""


@dataclass
class Reading:
    """Follows a source from position to position, as a query does, and keeps what it reads.

    Args:
        source: to read.
        position: where it stands.
        max_records: limit of each batch.
        clock: measures how long it takes for something to become visible.
    """

    source: Source
    position: Position
    max_records: int | None = None
    clock: Clock = field(default_factory=SystemClock)
    values: dict[int, list[bytes]] = field(default_factory=dict)
    batches: list[tuple[Position, Position]] = field(default_factory=list)

    def advance(self) -> bool:
        """Read one batch; whether there was one."""
        end = self.source.latest_position(self.position, self.max_records)
        if end == self.position:
            return False
        for split in self.source.splits(self.position, end):
            self.values.setdefault(split.partition, []).extend(read_values(self.source, [split]))
        self.batches.append((self.position, end))
        self.position = end
        return True

    def until_idle(self) -> None:
        """Read until there is nothing new.

        Raises:
            NonconformanceError: there always is.
        """
        for _ in range(MAX_BATCHES):
            if not self.advance():
                return
        raise NonconformanceError(f"{MAX_BATCHES} batches and no end")

    def until(self, expected: Values) -> None:
        """Read until as many records were read as are expected, and compare them.

        Raises:
            NonconformanceError: they are others, or do not come within SETTLE_TIMEOUT_S.
        """
        patience = Deadline.after(self.clock, SETTLE_TIMEOUT_S)
        wanted = sum(map(len, expected.values()))
        self.until_idle()
        while sum(map(len, self.values.values())) < wanted and not patience.is_over:
            self.clock.sleep(SETTLE_POLL_S)
            self.until_idle()
        require_equal("records read", dict(expected), {p: v for p, v in self.values.items() if v})


def read_values(source: Source, splits: Sequence[Split]) -> list[bytes]:
    """The payloads of splits that are read together.

    Raises:
        NonconformanceError: batches have other columns.
    """
    found: list[bytes] = []
    for batch in source.read(splits):
        require_equal("columns", [VALUE_COLUMN], batch.schema.names)
        found += batch.column(0).to_pylist()
    return found


def require_equal(what: str, expected: object, found: object) -> None:
    """Compare.

    Raises:
        NonconformanceError: they differ.
    """
    if expected != found:
        raise NonconformanceError(f"{what}: expected {expected!r}, found {found!r}")

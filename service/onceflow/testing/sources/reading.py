"""The origin that the contract of sources needs, and how tests read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Planner, Position, Reader, SourceSpec, Split
from onceflow.contracts.source_block import SourceBlock

Record: TypeAlias = tuple[bytes, bytes]
"""Key and value. A source without keys may drop the key."""
Values: TypeAlias = Mapping[int, Sequence[bytes]]
"""partition -> values of its records, in order."""

SETTLE_TIMEOUT_S = 30.0
"""For what was written to become visible: origins may be distributed."""
SETTLE_POLL_S = 0.05
MAX_BATCHES = 1000
"""A source that never comes to rest must not hang its test."""
SPEC = SourceSpec("origin", "binary", pa.schema([("value", pa.binary())]), lateness_ms=0)
"""One column with the payload; with a lateness, so that a backlog is read evenly."""


class Transaction(Protocol):
    """Records that were written and are not decided."""

    def commit(self) -> None:
        """Make them visible."""

    def abort(self) -> None:
        """Make them void forever."""


class Origin(Protocol):
    """A place that a test can write to. Begins with partitions 0 and 1, which are empty.

    Only `block` and `append` are needed by every test; the others belong to the promises that name
    them.
    """

    @property
    def block(self) -> SourceBlock:
        """Reads all of it from the beginning."""

    def append(self, partition: int, records: Sequence[Record]) -> None:
        """Write records that are visible at once."""


class TransactionalOrigin(Origin, Protocol):
    """For `TransactionPromises`."""

    def begin(self, partition: int, records: Sequence[Record]) -> Transaction:
        """Write records in a transaction of their own and leave it open."""


class CompactedOrigin(Origin, Protocol):
    """For `CompactionPromises`."""

    def compact(self) -> None:
        """Drop every record that has a newer one of its key; offsets stay."""


class TrimmedOrigin(Origin, Protocol):
    """For `RetentionPromises`."""

    def delete_before(self, partition: int, offset: int) -> None:
        """Drop the oldest offsets, as retention does: at least those before `offset`."""


class ReplaceableOrigin(Origin, Protocol):
    """For `IdentityPromises`."""

    def recreate(self) -> None:
        """Delete everything; begin again under the same name, empty."""


class GrowingOrigin(Origin, Protocol):
    """For `GrowthPromises`."""

    def add_partition(self) -> int:
        """Add an empty one and return its number."""


@dataclass(frozen=True)
class SourceUnderTest:
    """Makes fresh planners and readers, as Spark's processes do: from what travels as text.

    Args:
        block: from the pipeline file.
        connection: to the pipeline's brokers.
        spec: of the source.
    """

    block: SourceBlock
    connection: Connection = field(default_factory=lambda: Connection(""))
    spec: SourceSpec = SPEC

    def planner(self) -> Planner:
        """Make one."""
        return self._copy().planner(self.spec, self.connection)

    def reader(self) -> Reader:
        """Make one."""
        return self._copy().reader(self.spec, self.connection)

    def values(self, splits: Sequence[Split], reader: Reader | None = None) -> list[bytes]:
        """Read the payloads of splits together; by a fresh reader, or by one that has read."""
        found: list[bytes] = []
        for batch in (reader or self.reader()).read(splits):
            assert batch.schema.names == self.spec.schema.names
            found += batch.column(0).to_pylist()
        return found

    def _copy(self) -> SourceBlock:
        return type(self.block).model_validate(json.loads(json.dumps(self.block.written)))


class RecordsRead:
    """Follows a source from position to position, as a query does, and keeps what it reads.

    Args:
        source: to read.
        position: where it stands; the initial one if left out.
        max_records: limit of each batch.
        values: what was read before.
        clock: measures how long it takes for something to become visible.
    """

    def __init__(
        self,
        source: SourceUnderTest,
        position: Position | None = None,
        max_records: int | None = None,
        values: Values | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.source = source
        self.planner = source.planner()
        self.position = self.planner.initial_position() if position is None else position
        self.batches: list[tuple[Position, Position]] = []
        self.values = {partition: [*found] for partition, found in (values or {}).items()}
        self._max_records = max_records
        self._clock = clock or SystemClock()

    def advance(self) -> bool:
        """Read one batch; whether there was one."""
        end = self.planner.latest_position(self.position, self._max_records)
        if end == self.position:
            return False
        for split in self.planner.splits(self.position, end):
            self.values.setdefault(split.partition, []).extend(self.source.values([split]))
        self.batches.append((self.position, end))
        self.position = end
        return True

    def until_idle(self) -> None:
        """Read until there is nothing new; fails if there always is."""
        for _ in range(MAX_BATCHES):
            if not self.advance():
                return
        raise AssertionError(f"{MAX_BATCHES} batches and no end")

    def until(self, expected: Values) -> None:
        """Read until as many records were read as are expected, and compare them."""
        patience = self._clock.within(SETTLE_TIMEOUT_S)
        wanted = sum(map(len, expected.values()))
        self.until_idle()
        while sum(map(len, self.values.values())) < wanted and not patience.is_over:
            self._clock.sleep(SETTLE_POLL_S)
            self.until_idle()
        assert {p: v for p, v in self.values.items() if v} == dict(expected)

    def assert_contiguous(self) -> None:
        """Each batch begins where the one before ended."""
        ends: dict[tuple[str, int], int] = {}
        for start, end in self.batches:
            for topic, bounds in self.planner.ranges(start, end).items():
                for partition, (low, high) in bounds.items():
                    assert low == ends.get((topic, partition), low), f"{topic}-{partition}"
                    ends[topic, partition] = high

"""Steps of consumer tests: what was written, what must be read, what must be refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from onceflow.clock import SystemClock
from onceflow.protocol.record import Flag, RecordHeader
from onceflow_connectors.consumer import (
    Divergence,
    FilteringConsumer,
    Gap,
    GenerationChange,
    Hooks,
    LineageChange,
    Partition,
    Position,
    Record,
    Rules,
)

READ_TIMEOUT_S = 30.0
"""For what must come: joins, and a coordinator that is loaded for the first time."""
SETTLE_TIMEOUT_S = 120.0
"""For several joins in a row of a member that hardly polls, on a loaded machine."""


@dataclass(frozen=True)
class Written:
    """One record to write. Without a header it is a foreign one."""

    value: bytes
    header: bytes | None = None
    partition: int = 0
    key: bytes | None = None


class ConsumerKafka(Protocol):
    """A Kafka, real or fake, with one flavour of the consumer."""

    uncommitted: Mapping[str, Any]
    """The property that asks for read_uncommitted, in the flavour's own words."""
    auto_commit: Mapping[str, Any]
    """The property that asks for auto commit."""
    cooperative: Mapping[str, Any]
    """The property that asks for an assignor that moves partitions one by one."""

    def consumer(
        self,
        topics: Sequence[str],
        group: str,
        rules: Rules = ...,
        hooks: Hooks = ...,
        properties: Mapping[str, Any] = ...,
    ) -> FilteringConsumer:
        """A consumer that has not joined yet."""

    def consumer_at(self, address: str) -> FilteringConsumer:
        """A consumer with another address, at which no broker answers."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create it and wait until it can be written."""

    def recreate_topic(self, topic: str, partitions: int) -> None:
        """Delete it with all it holds and create it again."""

    def write(self, topic: str, records: Sequence[Written]) -> None:
        """Write in this order and wait for the acknowledgements."""

    def write_aborted(self, topic: str, records: Sequence[Written]) -> None:
        """Write in a transaction and abort it."""

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records as retention does."""

    def commit_by_another(self, group: str, position: Position) -> None:
        """Commit an offset as any program would."""

    def committed(self, group: str, topic: str, partition: int) -> Position | None:
        """The position that the group has committed."""

    def forget_offsets(self, group: str) -> None:
        """Drop them, as Kafka does for a group without members, by default after 7 days."""

    def expel_all(self, group: str) -> None:
        """Throw every member out of the group."""


def sequenced(
    *sequences: int,
    batch_id: int = 0,
    plan_tag: int = 7,
    generation: int = 1,
    tag: int = 1,
    partition: int = 0,
    lineage: int = 0,
) -> list[Written]:
    """Records of one batch; the value names the sequence."""
    return [
        Written(
            f"{partition}/{sequence}".encode(),
            RecordHeader(Flag(0), tag, generation, plan_tag, batch_id, sequence, lineage).pack(),
            partition,
        )
        for sequence in sequences
    ]


def take(consumer: FilteringConsumer, count: int) -> list[Record]:
    """The next `count` records; fails if they do not come."""
    deadline = SystemClock().within(READ_TIMEOUT_S)
    records: list[Record] = []
    while len(records) < count:
        deadline.check(f"only {len(records)} of {count} records came")
        record = consumer.poll(1.0)
        if record is not None:
            records.append(record)
    return records


def values(records: Sequence[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


def expect(consumer: FilteringConsumer, *expected: str) -> None:
    """The next values, in this order."""
    assert values(take(consumer, len(expected))) == list(expected)


def expect_error(consumer: FilteringConsumer, kind: type[Exception], text: str) -> None:
    """The next records lead to this error."""
    with pytest.raises(kind, match=re.escape(text)):
        take(consumer, 1)


def enter(consumer: FilteringConsumer) -> None:
    """Enter a consumer that must refuse to start."""
    with consumer:
        pytest.fail("it should have been refused")


def settle(
    *consumers: FilteringConsumer, partitions: int, polls_s: Sequence[float] = ()
) -> list[Record]:
    """Poll until all partitions are held and every member has one; returns what came.

    Args:
        polls_s: how long each of them is polled at a time; 0.1 s if not given.
    """
    deadline = SystemClock().within(SETTLE_TIMEOUT_S)
    times_s = polls_s or [0.1] * len(consumers)
    came = []

    def held() -> Iterator[Sequence[Partition]]:
        return (consumer.assignment() for consumer in consumers)

    while sum(map(len, held())) != partitions or not all(held()):
        deadline.check("the group did not settle", subject=f"held: {[*map(list, held())]}")
        polled = [one.poll(poll_s) for one, poll_s in zip(consumers, times_s, strict=True)]
        came += [record for record in polled if record is not None]
    return came


@dataclass
class Notes:
    """Hooks that write down what they are called with."""

    generations: list[GenerationChange] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    revoked: list[Partition] = field(default_factory=list)
    lineages: list[LineageChange] = field(default_factory=list)

    def hooks(self, load: Callable[[str, int], Position | None] | None = None) -> Hooks:
        return Hooks(
            self.generations.append,
            self.gaps.append,
            self.divergences.append,
            self.revoked.extend,
            load,
            self.lineages.append,
        )

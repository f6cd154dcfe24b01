"""A Kafka in memory for consumers: partitions, groups, rebalances. Passes the contract suite.

Rebalances are eager, as with both real clients: all members let go of everything when they poll,
and when the last one has, each finds its new share at its next poll. A member that does not poll in
time misses a generation in which others may have read its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from onceflow.errors import AbortableError, RetriableError
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.consumer import (
    FilteringConsumer,
    Hooks,
    Partition,
    Position,
    Record,
    Rules,
)
from onceflow_connectors.consumer.admission import NO_HOOKS, STRICT
from onceflow_connectors.consumer.client import NO_PROPERTIES, Subscription
from onceflow_connectors.consumer.holdings import Holdings
from tests.support.contracts.consumer_steps import Written

ADDRESS = "fake:9092"
POLLED_MAX = 3
"""Records handed out at once: several, so that some wait in the consumer."""
OWN_PROPERTIES = {"isolation": "read_committed", "auto_commit": False, "assignor": "range"}
WRITTEN_AT_MS = 1_700_000_000_000


@dataclass
class Log:
    """One partition. `None` stands for an aborted record."""

    start: int = 0
    entries: dict[int, Written | None] = field(default_factory=dict)
    end: int = 0

    def append(self, entry: Written | None) -> None:
        self.entries[self.end] = entry
        self.end += 1

    def delete_before(self, offset: int) -> None:
        self.start = offset
        self.entries = {o: entry for o, entry in self.entries.items() if o >= offset}


class Group:
    """Members in the order in which they joined, and what was committed."""

    def __init__(self) -> None:
        self.committed: dict[Partition, Position] = {}
        self.members: list[FakeClient] = []
        self._rejoined: list[FakeClient] = []
        self._shares: dict[FakeClient, list[Partition]] = {}
        self._is_rebalancing = False

    def rebalance(self) -> None:
        """Begin a rebalance; unfetched shares of the last one are void."""
        self._is_rebalancing = True
        self._rejoined.clear()
        self._shares.clear()

    def remove(self, member: FakeClient) -> None:
        if member in self.members:
            self.members.remove(member)
            self.rebalance()

    def is_rejoining(self, member: FakeClient) -> bool:
        return member in self._rejoined or member in self._shares

    def rejoin(self, member: FakeClient) -> bool:
        """Take part in a rebalance. Returns whether the member lets go of its partitions."""
        if not self._is_rebalancing or member in self._rejoined:
            return False
        self._rejoined.append(member)
        return True

    def share_of(
        self, member: FakeClient, partitions: Sequence[Partition]
    ) -> list[Partition] | None:
        """The member's share in a rebalance that is over, once; None if there is nothing new."""
        if self._is_rebalancing and len(self._rejoined) == len(self.members):
            self._is_rebalancing = False
            self._shares = {each: [] for each in self.members}
            for partition, owner in zip(partitions, cycle(self.members), strict=False):
                self._shares[owner].append(partition)
            self._rejoined.clear()
        return self._shares.pop(member, None)


class FakeClient:
    """Implements `client.Client`. Never waits: what is not here does not come."""

    def __init__(self, subscription: Subscription, kafka: FakeConsumerKafka) -> None:
        self._subscription = subscription
        self._kafka = kafka
        self._group = kafka.group(subscription.group)
        self._holdings: Holdings | None = None
        self._next: dict[Partition, int] = {}
        self._share: list[Partition] | None = None
        """What was assigned and is not read yet."""

    def start(self, holdings: Holdings) -> None:
        wanted = self._subscription
        wanted.checked_properties(OWN_PROPERTIES, {})
        if wanted.bootstrap_servers != ADDRESS:
            raise wanted.unreachable("silence")
        known = self._kafka.topics()
        wanted.refuse_missing([topic for topic in wanted.topics if topic not in known])
        wanted.check_group(topic for topic, _ in self._group.committed)
        self._holdings = holdings
        self._group.members.append(self)
        self._group.rebalance()

    def poll(self, timeout_s: float, most: int) -> Iterable[Record]:
        if self._take_part():
            return ()
        records: list[Record] = []
        for partition in list(self._next):
            records += self._fetch(partition, POLLED_MAX - len(records))
        return records

    def stored(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        committed = self._group.committed
        return {
            partition: committed[partition] for partition in partitions if partition in committed
        }

    def topic_names(self) -> Iterable[str]:
        return self._kafka.topics()

    def partitions(self) -> Sequence[Partition]:
        return self._kafka.partitions(self._subscription.topics)

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        log = self._kafka.log(partition)
        return log.start, log.end

    def commit(self, positions: Sequence[Position]) -> None:
        if self not in self._group.members:
            raise AbortableError("expelled")
        if self._group.is_rejoining(self):
            raise RetriableError("rebalance")
        self._group.committed.update({(p.topic, p.partition): p for p in positions})

    def seek(self, partition: Partition, offset: int) -> None:
        self._next[partition] = offset

    def stop(self) -> None:
        self._next.clear()
        self._group.remove(self)

    def _take_part(self) -> bool:
        """Returns whether anything was assigned or taken away."""
        assert self._holdings is not None
        has_changed = False
        if self not in self._group.members:
            self._next.clear()
            self._holdings.lost()
            has_changed = True
            self._group.members.append(self)
            self._group.rebalance()
        if self._group.rejoin(self):
            self._next.clear()
            self._holdings.revoked()
            has_changed = True
        partitions = self._kafka.partitions(self._subscription.topics)
        self._share = self._group.share_of(self, partitions) or self._share
        if self._share is not None:
            starts = self._holdings.assigned(self._share)
            self._next = {p: starts[p] or self.log_bounds(p)[0] for p in self._share}
            self._share = None
            has_changed = True
        return has_changed

    def _fetch(self, partition: Partition, count: int) -> list[Record]:
        log = self._kafka.log(partition)
        if not log.start <= self._next[partition] <= log.end:
            self._next[partition] = log.start
        records: list[Record] = []
        while len(records) < count and self._next[partition] < log.end:
            offset = self._next[partition]
            entry = log.entries[offset]
            self._next[partition] += 1
            if entry is not None:
                headers = () if entry.header is None else ((HEADER_NAME, entry.header),)
                records.append(
                    Record(*partition, offset, WRITTEN_AT_MS, None, entry.value, headers)
                )
        return records


class FakeConsumerKafka:
    """Implements `consumer_steps.ConsumerKafka`."""

    uncommitted: Mapping[str, Any] = {"isolation": "read_uncommitted"}
    auto_commit: Mapping[str, Any] = {"auto_commit": True}
    cooperative: Mapping[str, Any] = {"assignor": "cooperative"}

    def __init__(self) -> None:
        self._logs: dict[Partition, Log] = {}
        self._groups: dict[str, Group] = {}

    def consumer(
        self,
        topics: Sequence[str],
        group: str,
        rules: Rules = STRICT,
        hooks: Hooks = NO_HOOKS,
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> FilteringConsumer:
        subscription = Subscription(ADDRESS, group, topics, properties)
        return FilteringConsumer(FakeClient(subscription, self), rules, hooks)

    def consumer_at(self, address: str) -> FilteringConsumer:
        subscription = Subscription(address, "group", ["any"], NO_PROPERTIES)
        return FilteringConsumer(FakeClient(subscription, self), STRICT, NO_HOOKS)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._logs |= {(topic, number): Log() for number in range(partitions)}

    def recreate_topic(self, topic: str, partitions: int) -> None:
        for group in self._groups.values():
            kept = {p: position for p, position in group.committed.items() if p[0] != topic}
            group.committed = kept
        self.create_topic(topic, partitions)

    def write(self, topic: str, records: Sequence[Written]) -> None:
        for record in records:
            self._logs[topic, record.partition].append(record)

    def write_aborted(self, topic: str, records: Sequence[Written]) -> None:
        for record in records:
            self._logs[topic, record.partition].append(None)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._logs[topic, partition].delete_before(offset)

    def commit_by_another(self, group: str, position: Position) -> None:
        self.group(group).committed[position.topic, position.partition] = position

    def committed(self, group: str, topic: str, partition: int) -> Position | None:
        return self.group(group).committed.get((topic, partition))

    def forget_offsets(self, group: str) -> None:
        self.group(group).committed.clear()

    def expel_all(self, group: str) -> None:
        self.group(group).members.clear()

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group())

    def log(self, partition: Partition) -> Log:
        return self._logs[partition]

    def logs(self) -> Iterable[Log]:
        return self._logs.values()

    def topics(self) -> set[str]:
        return {topic for topic, _ in self._logs}

    def partitions(self, topics: Sequence[str]) -> list[Partition]:
        return [partition for partition in self._logs if partition[0] in topics]

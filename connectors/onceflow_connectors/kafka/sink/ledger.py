"""Reads a pipeline's ledger: who owns it, and what was committed last.

Every read goes to the high watermark that the leader had when the read began. The last stable
offset would not do: an open transaction of another producer can hold it below our last commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import Message

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, TopicInfo, TopicSpec
from onceflow.errors import ConfigError, Fault
from onceflow.protocol.identity import OWNER_PARTITION, head_partition, ledger_topic
from onceflow.protocol.ledger import HEAD_KEY, OWNER_KEY, HeadEntry, OwnerEntry
from onceflow_connectors.kafka.admin.administration import HIGH_WATERMARK, LOG_START, Administration
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.admin.reading import CommittedReader

REPLICATION = 3
"""Replicas of the ledger, if there are as many brokers: losing it halts the pipeline."""
HISTORY_MS = 7 * 24 * 60 * 60 * 1000
"""How long entries stay readable one by one before compaction leaves the newest alone."""
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(HISTORY_MS),
    "unclean.leader.election.enable": "false",
}
IN_SYNC: Mapping[str, str] = {"min.insync.replicas": "2"}
"""With `REPLICATION` replicas: no entry is acknowledged that only one broker has."""

FIRST_REACH = 64
"""Offsets that the first look goes back: an entry and its marker take two, so the newest is nearly
always here. A week of a busy pipeline leaves six million: too many to read for the last."""
REACH_GROWTH = 8
"""How much further each next look goes back: a million aborted records are six looks."""


class KafkaLedger:
    """Implements `contracts.sink.Ledger`. Not for several threads at once."""

    def __init__(self, pipeline: str, connection: Connection) -> None:
        self._topic = ledger_topic(pipeline)
        self._connection = connection
        self._administration = Administration(connection)
        self._reader = CommittedReader(connection)

    def create(self, partitions: int, deadline: Deadline) -> None:
        """Create it with `REPLICATION` replicas, or as many as there are brokers."""
        broker = KafkaBroker(self._connection)
        try:
            found = broker.topic(self._topic, deadline)
            if found is None:
                replication = min(REPLICATION, broker.brokers(deadline))
                config = {**SETTINGS, **(IN_SYNC if replication == REPLICATION else {})}
                spec = TopicSpec(self._topic, partitions, replication, config)
                broker.create_topic(spec, deadline)
                found = broker.topic(self._topic, deadline)
        finally:
            broker.close()
        # Also for a new topic: another process may have been quicker to create it.
        faults = _faults(found, partitions) if found else ()
        if faults:
            raise ConfigError("unusable ledger topic", subject=self._topic, faults=faults)

    def exists(self, deadline: Deadline) -> bool:
        return bool(self._administration.topics([self._topic], deadline))

    def read_owner(self, deadline: Deadline) -> OwnerEntry | None:
        value = self._newest(OWNER_PARTITION, OWNER_KEY, deadline)
        return None if value is None else OwnerEntry.from_json(value)

    def read_head(self, slot: int, deadline: Deadline) -> HeadEntry | None:
        value = self._newest(head_partition(slot), HEAD_KEY, deadline)
        return None if value is None else HeadEntry.from_json(value)

    def history(self, slot: int, deadline: Deadline) -> Iterator[HeadEntry]:
        """Stream the entries; other reads of this ledger may go on meanwhile."""
        partition = head_partition(slot)
        bounds = self._bounds(partition, deadline)
        if bounds is None:
            return
        reader = CommittedReader(self._connection)
        try:
            for message in reader.read(self._topic, partition, bounds, deadline):
                value = message.value()
                if message.key() == HEAD_KEY and value is not None:
                    yield HeadEntry.from_json(value)
        finally:
            reader.close()

    def close(self) -> None:
        self._reader.close()
        self._administration.close()

    def _newest(self, partition: int, key: bytes, deadline: Deadline) -> bytes | None:
        """Return the last committed value of a key; None also if the newest record deletes the key.

        Goes back from the end in growing steps until one holds such a record: the end may be any
        number of aborted records, which only reading tells apart.
        """
        bounds = self._bounds(partition, deadline)
        if bounds is None:
            return None
        log_start, end = bounds
        reach = FIRST_REACH
        while end > log_start:
            start = max(log_start, end - reach)
            newest: Message | None = None
            for message in self._reader.read(self._topic, partition, (start, end), deadline):
                if message.key() == key:
                    newest = message
            if newest is not None:
                return newest.value()
            end, reach = start, reach * REACH_GROWTH
        return None

    def _bounds(self, partition: int, deadline: Deadline) -> tuple[int, int] | None:
        """Return log start and high watermark, or None if the topic does not exist."""
        place = (self._topic, partition)
        end = self._administration.offsets([place], HIGH_WATERMARK, deadline)
        start = self._administration.offsets([place], LOG_START, deadline)
        if start is None or end is None:
            return None
        return start[place].offset, end[place].offset


def _faults(found: TopicInfo, partitions: int) -> tuple[Fault, ...]:
    faults = []
    if found.partitions < partitions:
        faults.append(
            Fault(
                f"{found.partitions} partitions",
                where=found.name,
                expected=f"{partitions} or more, one for the owner and one for each writer slot",
                suggestion="Add partitions, or use fewer slots.",
            )
        )
    policy = found.config.get("cleanup.policy")
    if policy != SETTINGS["cleanup.policy"]:
        faults.append(
            Fault(
                f"cleanup.policy is {policy}, which loses entries",
                where=found.name,
                expected=SETTINGS["cleanup.policy"],
                suggestion="Change the setting of the topic.",
            )
        )
    return tuple(faults)

"""The partitions that this member holds, with the position of each.

For each partition the position and the filter's state are one value that is stored and loaded as a
whole. This module decides what a rebalance does to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onceflow.errors import ConfigError, CorruptionError, InvariantError, RetriableError
from onceflow_connectors.consumer.admission import Hooks, OnFault, Rules
from onceflow_connectors.consumer.client import Client, patiently
from onceflow_connectors.consumer.filter import PartitionFilter
from onceflow_connectors.consumer.records import Partition, Position, name_of


@dataclass
class Progress:
    """The position of one partition.

    Args:
        offset: next offset to read; None until the first record of a partition read from its start.
        stored: the position that is stored, as far as we know.
        is_moved: whether `offset` changed since it was stored.
    """

    partition: Partition
    offset: int | None
    filter: PartitionFilter
    stored: Position | None
    is_moved: bool = False

    def position(self) -> Position:
        """The value to store.

        Raises:
            InvariantError: nothing was read yet.
        """
        if self.offset is None:
            raise InvariantError("nothing was read yet", subject=name_of(self.partition))
        return Position(*self.partition, self.offset, self.filter.to_json())


class Holdings:
    """The partitions of one member. The client tells it of rebalances, inside its `poll`."""

    def __init__(self, client: Client, rules: Rules, hooks: Hooks) -> None:
        self._client = client
        self._rules = rules
        self._hooks = hooks
        self._held: dict[Partition, Progress] = {}
        self._parked: dict[Partition, Progress] = {}
        self._given_up: set[Partition] = set()
        """Partitions whose loss was not reported to the user yet."""

    def partitions(self) -> Sequence[Partition]:
        """All partitions that are held now."""
        return sorted(self._held)

    def check_offsets(self) -> None:
        """Refuse a group without offsets, unless the rules accept it as a new one.

        Offsets expire for a whole group, or for a topic without subscribers.

        Raises:
            ConfigError: a topic holds records, and the group has no offset of it.
        """
        is_ours = self._hooks.load_position is not None
        if is_ours or self._rules.missing_offset is OnFault.REPORT:
            return
        partitions = self._client.partitions()
        stored = patiently(lambda: self._client.stored(partitions))
        left = {topic for topic, _ in partitions} - {topic for topic, _ in stored}
        missing = sorted({p[0] for p in partitions if p[0] in left and self._holds_records(p)})
        if missing:
            raise ConfigError(
                "the group has no offset of a topic that holds records",
                subject=", ".join(missing),
                expected="offsets that an earlier member has committed",
                found="none: the group is new, or they have expired (offsets.retention.minutes)",
                then="nothing was read; to read from the start, which may repeat what was"
                " delivered, start once with Rules(missing_offset=OnFault.REPORT) and commit",
            )

    def _holds_records(self, partition: Partition) -> bool:
        start, end = patiently(lambda: self._client.log_bounds(partition))
        return start < end

    def progress(self, partition: Partition) -> Progress:
        """The progress of a partition that this member holds.

        Raises:
            InvariantError: the member does not hold it, or not yet.
        """
        if partition not in self._held:
            raise InvariantError(
                "this consumer does not hold the partition",
                subject=name_of(partition),
                expected="one of assignment(), which is filled by the first polls",
            )
        return self._held[partition]

    def position(self, partition: Partition) -> Position:
        """The value for the user to store. It counts as stored from now on.

        Raises:
            InvariantError: nothing was read yet, or this member does not hold the partition.
        """
        progress = self.progress(partition)
        position = progress.position()
        if self._hooks.load_position is not None:
            progress.stored = position
        return position

    def moved(self) -> Sequence[Progress]:
        """All progress that is not stored yet.

        Raises:
            RetriableError: a rebalance is under way. Kafka would accept a commit although
                another member may hold the partition by now.
        """
        if any(progress.is_moved for progress in self._parked.values()):
            raise RetriableError(
                "offsets cannot be committed during a rebalance", then="poll, then commit again"
            )
        return [progress for progress in self._held.values() if progress.is_moved]

    def take_moved(self) -> Sequence[Position]:
        """Every position that is not stored yet. All count as stored from now on.

        Raises:
            RetriableError: a rebalance is under way.
        """
        moved = self.moved()
        positions = [progress.position() for progress in moved]
        for progress, position in zip(moved, positions, strict=True):
            progress.stored = position
            progress.is_moved = False
        return positions

    def revoked(self) -> None:
        """A rebalance began: commit nothing until it ends."""
        self._parked.update(self._held)
        self._held.clear()

    def lost(self) -> None:
        """This member was expelled: others may have had the partitions since."""
        self.revoked()
        self._give_up()

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, int | None]:
        """A rebalance ended; this member now holds exactly these partitions.

        Returns where to read each of them from; None is the start of the partition.

        A partition that stayed here continues where it was: reading it again from the stored
        position would repeat what this process has delivered. It did not stay if the stored
        position is not ours: another member had it in a generation of the group that we missed.

        Raises:
            ConfigError: an offset was committed by another program.
            CorruptionError: the stored state is damaged.
        """
        self.revoked()
        for found in self._load(partitions):
            ours = self._parked.get(found.partition)
            stayed = ours is not None and ours.stored == found.stored
            self._held[found.partition] = self._parked.pop(found.partition) if stayed else found
        self._give_up()
        return {partition: progress.offset for partition, progress in self._held.items()}

    def release(self) -> None:
        """Forget everything: this member is about to leave."""
        self._held.clear()
        self._parked.clear()
        self._given_up.clear()

    def _give_up(self) -> None:
        self._given_up.update(self._parked)
        self._parked.clear()
        if self._given_up and self._hooks.on_revoked:
            self._hooks.on_revoked(sorted(self._given_up))
        self._given_up.clear()

    def _load(self, partitions: Sequence[Partition]) -> Iterable[Progress]:
        load = self._hooks.load_position
        stored = {} if load else patiently(lambda: self._client.stored(partitions))
        return [self._resume(p, load(*p) if load else stored.get(p)) for p in partitions]

    def _resume(self, partition: Partition, stored: Position | None) -> Progress:
        if stored is None:
            return Progress(partition, None, PartitionFilter(), None)
        if not stored.state:
            self._check_bare(stored)
            return Progress(partition, stored.offset, PartitionFilter(), stored)
        try:
            state = PartitionFilter.from_json(stored.state)
        except (ConfigError, CorruptionError) as error:
            error.subject = name_of(partition)
            raise
        return Progress(partition, stored.offset, state, stored)

    def _check_bare(self, position: Position) -> None:
        if self._rules.bare_offset is OnFault.REPORT:
            return
        partition = (position.topic, position.partition)
        start, _ = patiently(lambda: self._client.log_bounds(partition))
        if position.offset > start:
            raise ConfigError(
                "the group's offset has no state of an Onceflow consumer",
                subject=name_of(partition),
                expected=f"our own commit, or an offset of {start}, the partition's start",
                found=f"offset {position.offset}, committed by another program",
                then="use another group, or set Rules(bare_offset=OnFault.REPORT)",
            )

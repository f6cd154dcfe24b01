"""Decides for each record whether the user sees it. Pure: no client, no clock.

The verdict is the filter's; the user chooses what follows from it (`Rules`), except where the
record's own flag says that its pipeline promised less than exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from onceflow.contracts.record import Record
from onceflow.errors import CorruptionError, LineageError, RecordError
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader, follows
from onceflow_connectors.consumer.filter import FilterVerdict, PartitionFilter, Track
from onceflow_connectors.consumer.records import Partition, Position


class OnFault(Enum):
    """Reaction to a history that is not whole."""

    RAISE = "raise"
    REPORT = "report"
    """Count it, call the hook, deliver the record."""


class OnForeign(Enum):
    """Reaction to a record that Onceflow did not write. No promise covers such records."""

    RAISE = "raise"
    DELIVER = "deliver"
    DROP = "drop"


@dataclass(frozen=True)
class Rules:
    """How strict a consumer is.

    Args:
        gap: sequences are missing: loss, retention or compaction. `REPORT` on a compacted topic.
            Before a record of a pipeline that runs at_most_once it is always `REPORT`.
        divergence: a batch was written twice with different content. Under `REPORT` the other
            version is delivered too, and the filter continues from the longer one. For a record
            of a pipeline that runs at_least_once it is always `REPORT`.
        foreign: a record without our header.
        bare_offset: the group has an offset without our state, so it is unknown what was delivered.
            Under `REPORT` the first record at that offset counts as the next.
        new_lineage: a pipeline began again at sequence 1 because its ledger was lost. It has read
            its input again, so its records may repeat the *content* of what was delivered. Under
            `REPORT` its first record counts as the first of all.
        missing_offset: the group has no offset for a topic that holds records: it has never
            committed any, or they have expired (`offsets.retention.minutes`, 7 days after the last
            member has left), which look the same. Under `REPORT` the topic is read from its start,
            which repeats what was delivered before they expired. Start a new group under `REPORT`,
            and all later ones under `RAISE`. Ignored if `Hooks.load_position` is given.
        cures: what an error tells a user to do, by the name of the rule that raised it; by
            default, to set that rule. For programs whose users do not see these rules.
    """

    gap: OnFault = OnFault.RAISE
    divergence: OnFault = OnFault.RAISE
    foreign: OnForeign = OnForeign.RAISE
    bare_offset: OnFault = OnFault.RAISE
    new_lineage: OnFault = OnFault.RAISE
    missing_offset: OnFault = OnFault.REPORT
    cures: Mapping[str, str] = field(default_factory=dict)

    def cure(self, rule: str, otherwise: str) -> str:
        """Tell what the error of a rule says to the user."""
        return self.cures.get(rule, otherwise)


STRICT = Rules()


@dataclass(frozen=True)
class Gap:
    """Missing sequences. Both bounds are included; `record` is the first one after them."""

    record: Record
    first_missing: int
    last_missing: int


@dataclass(frozen=True)
class Divergence:
    """A record that contradicts what was delivered; `high_water` is of its pipeline."""

    record: Record
    high_water: int


@dataclass(frozen=True)
class GenerationChange:
    """An operator started the pipeline on a new checkpoint; sequences continue."""

    record: Record
    previous: int
    current: int


@dataclass(frozen=True)
class LineageChange:
    """A pipeline began again at sequence 1; `high_water` is what was delivered of it before."""

    record: Record
    high_water: int


LoadPosition: TypeAlias = Callable[[str, int], Position | None]


@dataclass(frozen=True)
class Hooks:
    """Functions of the user. All run in the thread that polls; their exceptions are passed on.

    Args:
        on_generation: before the first record of a later generation is delivered.
        on_gap: under `OnFault.REPORT`, before the record after the gap is delivered.
        on_divergence: under `OnFault.REPORT`, before the divergent record is delivered.
        on_revoked: partitions went to another member, or this one must read them again from the
            stored position. Records that were delivered and not committed come again: undo or
            forget their effects. They can no longer be committed.
        load_position: from topic and partition to the position that the user stored with the
            effects, or None to begin at the start of the partition. If given, it replaces the
            group's committed offsets.
        on_new_lineage: under `OnFault.REPORT`, before the first record of the new lineage.
    """

    on_generation: Callable[[GenerationChange], None] | None = None
    on_gap: Callable[[Gap], None] | None = None
    on_divergence: Callable[[Divergence], None] | None = None
    on_revoked: Callable[[Sequence[Partition]], None] | None = None
    load_position: LoadPosition | None = None
    on_new_lineage: Callable[[LineageChange], None] | None = None


NO_HOOKS = Hooks()


@dataclass
class Counters:
    """Counts since the consumer was made.

    Args:
        discarded: repeats.
        foreign: records without our header, whether delivered, dropped or refused.
    """

    delivered: int = 0
    discarded: int = 0
    gaps: int = 0
    divergences: int = 0
    foreign: int = 0
    new_lineages: int = 0


class Admission:
    """Applies the rules to one record after another."""

    def __init__(self, rules: Rules, hooks: Hooks, counters: Counters) -> None:
        self._rules = rules
        self._hooks = hooks
        self._counters = counters

    def admit(self, record: Record, partition_filter: PartitionFilter) -> bool:
        """Whether the user sees the record. If so, the filter has taken it.

        Raises:
            CorruptionError: a gap, a divergence, or an unreadable header; the filter is unchanged.
            LineageError: the pipeline began again; the filter is unchanged.
            RecordError: a foreign record, where the rules refuse it.
        """
        header = self._header_of(record)
        if header is None:
            return self._admit_foreign(record)
        track = partition_filter.track(header.pipeline_tag)
        verdict = track.judge(header)
        if verdict is FilterVerdict.REPEAT:
            self._counters.discarded += 1
            return False
        if verdict is FilterVerdict.DIVERGENCE:
            self._report_divergence(record, header, track)
            track.extend(header)
        else:
            if verdict is FilterVerdict.GAP:
                self._report_gap(record, header, track)
            if verdict is FilterVerdict.NEW_LINEAGE:
                self._report_new_lineage(record, header, track)
                track.forget()
            self._announce_generation(record, header, track)
            track.take(header)
        self._counters.delivered += 1
        return True

    def admit_followers(
        self, record: Record, following: Iterable[Record], partition_filter: PartitionFilter
    ) -> int:
        """As `admit` for records right after an admitted one, as long as no decision is needed.

        They are of the same batch, with the next sequences and later offsets.

        Returns:
            How many were admitted. The next one, if any, is for `admit`.
        """
        packed = record.header_value(HEADER_NAME)
        header = record.header
        if packed is None or header is None:
            return 0
        track = partition_filter.track(header.pipeline_tag)
        if not track.is_newest(header):
            return 0
        topic, partition, offset, sequence = *record[:3], header.sequence
        for each in following:
            headers = each.headers
            if (
                each.partition != partition
                or each.offset <= offset
                or each.topic != topic
                or len(headers) != 1
                or headers[0][0] != HEADER_NAME
                or not follows(packed, headers[0][1] or b"?", sequence + 1)
            ):
                break
            offset = each.offset
            sequence += 1
        found = sequence - header.sequence
        track.take_more(found)
        self._counters.delivered += found
        return found

    def _header_of(self, record: Record) -> RecordHeader | None:
        try:
            return record.header
        except CorruptionError as error:
            error.subject = str(record)
            raise

    def _admit_foreign(self, record: Record) -> bool:
        self._counters.foreign += 1
        if self._rules.foreign is OnForeign.RAISE:
            raise RecordError(
                "record without the header of Onceflow",
                subject=str(record),
                expected="a topic that only pipelines write to",
                then=self._rules.cure(
                    "foreign", "set Rules(foreign=...) to deliver or to drop such records"
                ),
            )
        if self._rules.foreign is OnForeign.DROP:
            return False
        self._counters.delivered += 1
        return True

    def _announce_generation(self, record: Record, header: RecordHeader, track: Track) -> None:
        previous, current = track.generation, header.generation
        if self._hooks.on_generation and previous is not None and previous != current:
            self._hooks.on_generation(GenerationChange(record, previous, current))

    def _report_gap(self, record: Record, header: RecordHeader, track: Track) -> None:
        self._counters.gaps += 1
        gap = Gap(record, track.high_water + 1, header.sequence - 1)
        if self._rules.gap is OnFault.RAISE and Flag.AT_MOST_ONCE not in header.flags:
            raise CorruptionError(
                "records are missing",
                subject=f"{record}, {pipeline_text(header.pipeline_tag)}",
                expected=f"sequence {gap.first_missing}",
                found=f"sequence {header.sequence}",
                then="retention or compaction removed them, or they were lost; delivery stops; "
                + self._rules.cure("gap", "Rules(gap=OnFault.REPORT) goes on after them"),
            )
        if self._hooks.on_gap:
            self._hooks.on_gap(gap)

    def _report_new_lineage(self, record: Record, header: RecordHeader, track: Track) -> None:
        self._counters.new_lineages += 1
        if self._rules.new_lineage is OnFault.RAISE:
            raise LineageError(
                "a pipeline began again at sequence 1, because its ledger was lost",
                subject=f"{record}, {pipeline_text(header.pipeline_tag)}",
                expected=f"sequence {track.high_water + 1} of {_lineage_text(track.lineage)}",
                found=f"sequence {header.sequence} of {_lineage_text(header.lineage)}",
                then="delivery stops: it has read its input again, so decide what to do with the"
                " effects of its earlier records; then "
                + self._rules.cure(
                    "new_lineage",
                    "Rules(new_lineage=OnFault.REPORT) delivers every record that it has written"
                    " since",
                ),
            )
        if self._hooks.on_new_lineage:
            self._hooks.on_new_lineage(LineageChange(record, track.high_water))

    def _report_divergence(self, record: Record, header: RecordHeader, track: Track) -> None:
        self._counters.divergences += 1
        if self._rules.divergence is OnFault.RAISE and Flag.AT_LEAST_ONCE not in header.flags:
            raise CorruptionError(
                "a batch was written twice with different content",
                subject=f"{record}, {pipeline_text(header.pipeline_tag)}",
                expected=f"what was delivered up to sequence {track.high_water}",
                found=f"sequence {header.sequence} of batch {header.batch_id}, "
                f"generation {header.generation}, plan tag {header.plan_tag:08x}",
                then="delivery stops; `onceflow ledger verify` shows which one is committed; "
                + self._rules.cure("divergence", "Rules(divergence=OnFault.REPORT) delivers both"),
            )
        if self._hooks.on_divergence:
            self._hooks.on_divergence(Divergence(record, track.high_water))


def pipeline_text(tag: int) -> str:
    """The text for a pipeline whose name is unknown."""
    return f"pipeline tag {tag:08x}"


def _lineage_text(lineage: int) -> str:
    return f"lineage {lineage}" if lineage else "an unknown lineage"

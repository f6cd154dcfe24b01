"""The de-duplicating filter of one topic partition. Pure: headers in, verdicts out.

A writer numbers its records 1, 2, 3 ... per (pipeline, output partition), across restarts and
generations. Only a writer whose ledger was lost begins again, under a new lineage. So a reader that
remembers the highest number delivered, and stores it together with the position, can tell repeats,
new records and gaps apart, however often records are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from onceflow.errors import ConfigError, CorruptionError
from onceflow.protocol.ledger import canonical_json
from onceflow.protocol.record import RecordHeader

STATE_KEY = "onceflow"
"""Marks the JSON as ours; its value is the version."""
STATE_VERSION = 1
REMEMBERED_BATCHES = 8
"""Batches per pipeline whose plan tags are kept. Only the last batch can be written again, and two
drivers that race are at most a few batches apart; older repeats are discarded unchecked."""
STATE_BYTES_MAX = 4095
"""Kafka's default limit for the metadata of an offset commit (`offset.metadata.max.bytes`), less
one for the zero byte at its end."""


class FilterVerdict(Enum):
    """How a record relates to those that were delivered before it."""

    NEXT = auto()
    """The next record of its pipeline, or the first one ever."""
    REPEAT = auto()
    """Its sequence was delivered before, from the same batch if that is still remembered."""
    GAP = auto()
    """Records before it are missing: lost, or removed by retention or compaction."""
    DIVERGENCE = auto()
    """The batch or the sequence was delivered before with different content."""
    NEW_LINEAGE = auto()
    """The pipeline began again at sequence 1: its earlier numbers no longer count."""


@dataclass(slots=True)
class Batch:
    """The delivered part of one batch; `first` and `last` are sequences, both included."""

    first: int
    last: int
    generation: int
    batch_id: int
    plan_tag: int

    def contradicts(self, header: RecordHeader) -> bool:
        """Whether this batch and the record cannot both be true."""
        if _key(header) == _key(self):
            return header.plan_tag != self.plan_tag
        return self._spans(header)

    def holds(self, header: RecordHeader) -> bool:
        """Whether the record is one of this batch: by sequence, batch and plan."""
        return self._spans(header) and not self.contradicts(header)

    def _spans(self, header: RecordHeader) -> bool:
        return self.first <= header.sequence <= self.last


def _key(of: Batch | RecordHeader) -> tuple[int, int]:
    """The name of a batch; it rises with each batch."""
    return of.generation, of.batch_id


class Track:
    """The delivered part of one pipeline in one partition.

    Args:
        batches: the newest, oldest first, at most `REMEMBERED_BATCHES`.
        lineage: of the records that were delivered; 0 if unknown.
    """

    def __init__(self, batches: list[Batch], lineage: int = 0) -> None:
        self._batches = batches
        self.lineage = lineage

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def high_water(self) -> int:
        """Highest sequence delivered; 0 if none was."""
        return self._batches[-1].last if self._batches else 0

    @property
    def generation(self) -> int | None:
        """Generation of the newest batch delivered, or None."""
        return self._batches[-1].generation if self._batches else None

    def judge(self, header: RecordHeader) -> FilterVerdict:
        """Compare the record with those delivered. Changes nothing."""
        if not self._batches:
            return FilterVerdict.NEXT
        newest = self._batches[-1]
        if self._is_of_another_lineage(header):
            return FilterVerdict.NEW_LINEAGE
        if header.sequence <= newest.last:
            is_contradicted = any(batch.contradicts(header) for batch in self._batches)
            return FilterVerdict.DIVERGENCE if is_contradicted else FilterVerdict.REPEAT
        if newest.contradicts(header) or _key(header) < _key(newest):
            return FilterVerdict.DIVERGENCE
        return FilterVerdict.NEXT if header.sequence == newest.last + 1 else FilterVerdict.GAP

    def _is_of_another_lineage(self, header: RecordHeader) -> bool:
        if header.lineage == self.lineage:
            return False
        if header.lineage and self.lineage:
            return True
        # One lineage is unknown, so the record may be of either. Discard it only if it provably was
        # delivered before.
        is_provable = any(batch.holds(header) for batch in self._batches)
        return header.sequence <= self.high_water and not is_provable

    def forget(self) -> None:
        """Forget everything, so that the next record counts as the first: for a `NEW_LINEAGE`."""
        self._batches.clear()
        self.lineage = 0

    def take(self, header: RecordHeader) -> None:
        """Remember a delivered record. Only for `NEXT`, or for a `GAP` that is tolerated."""
        self.lineage = header.lineage or self.lineage
        sequence = header.sequence
        if self._batches and _key(self._batches[-1]) == _key(header):
            self._batches[-1].last = sequence
            return
        self._batches.append(Batch(sequence, sequence, *_key(header), header.plan_tag))
        del self._batches[:-REMEMBERED_BATCHES]

    def is_newest(self, header: RecordHeader) -> bool:
        """Whether the record is the last one that was taken, and of its batch's plan."""
        newest = self._batches[-1] if self._batches else None
        return (
            newest is not None
            and (newest.last, newest.plan_tag) == (header.sequence, header.plan_tag)
            and _key(newest) == _key(header)
        )

    def take_more(self, count: int) -> None:
        """As `take`, for the records of the newest batch that follow the last one."""
        self._batches[-1].last += count

    def extend(self, header: RecordHeader) -> None:
        """Continue after a divergence that is tolerated, if it extends the newest batch.

        Otherwise the extra records of the other version would look missing before the next batch.
        """
        batch = self._batches[-1]
        if _key(batch) == _key(header) and header.sequence == batch.last + 1:
            batch.last = header.sequence

    def newest(self, count: int) -> Iterator[list[int]]:
        """The newest `count` batches as JSON values, oldest first."""
        for batch in self._batches[-count:]:
            yield [batch.first, batch.last, *_key(batch), batch.plan_tag]


class PartitionFilter:
    """The tracks of every pipeline that writes to one topic partition.

    Its state is one line of JSON that fits into the metadata of an offset commit, so that position
    and filter move together:
    `{"lineages":[<lineage>,...],"onceflow":1,
    "pipelines":{"<pipeline tag>":[[first,last,generation,batch_id,plan_tag],...]}}`.
    The lineages are those of the pipelines in the order of their tags as text, and left out if no
    pipeline has one. Consumers of versions without lineages ignore that key, and do not write it.
    """

    def __init__(self) -> None:
        self._tracks: dict[int, Track] = {}

    def track(self, pipeline_tag: int) -> Track:
        """The track of one pipeline; an empty one if it was never seen."""
        if pipeline_tag not in self._tracks:
            self._tracks[pipeline_tag] = Track([])
        return self._tracks[pipeline_tag]

    def to_json(self) -> str:
        """Encode within `STATE_BYTES_MAX`.

        Guaranteed: every high-water and lineage. Not guaranteed: all remembered batches. If many
        pipelines share a partition, the oldest batches are left out, and their repeats are then
        discarded unchecked.

        Raises:
            ConfigError: too many pipelines write to this partition for the available room.
        """
        tracks = {str(tag): track for tag, track in self._tracks.items() if track}
        lineages = [tracks[tag].lineage for tag in sorted(tracks)]
        for count in range(REMEMBERED_BATCHES, 0, -1):
            pipelines = {tag: list(track.newest(count)) for tag, track in tracks.items()}
            state = {STATE_KEY: STATE_VERSION, "pipelines": pipelines}
            text = canonical_json(state | ({"lineages": lineages} if any(lineages) else {}))
            if len(text) <= STATE_BYTES_MAX:
                return text
        raise ConfigError(
            "too many pipelines write to one partition",
            subject=f"{len(tracks)} pipelines",
            expected=f"positions that fit into {STATE_BYTES_MAX} bytes",
            found=f"{len(text)} bytes",
            then="give each pipeline its own topic",
        )

    @classmethod
    def from_json(cls, text: str) -> PartitionFilter:
        """Decode what `to_json` wrote.

        Raises:
            ConfigError: another program committed the text.
            CorruptionError: the text is ours, but of an unknown version or damaged.
        """
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or STATE_KEY not in fields:
            raise foreign_state(repr(text[:80]))
        if fields[STATE_KEY] != STATE_VERSION:
            raise CorruptionError(
                "unknown version of the consumer's state",
                expected=f"version {STATE_VERSION}",
                found=repr(fields[STATE_KEY]),
                then="upgrade this consumer before it joins the group",
            )
        loaded = cls()
        try:
            pipelines = fields["pipelines"]
            lineages = fields.get("lineages", [0] * len(pipelines))
            for (tag, rows), lineage in zip(sorted(pipelines.items()), lineages, strict=True):
                batches = [Batch(*map(_number, row)) for row in rows]
                loaded._tracks[int(tag)] = Track(batches, _number(lineage))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(
                "damaged state of a consumer", expected="what it wrote", found=repr(text[:80])
            ) from error
        return loaded


def foreign_state(found: str, subject: str = "") -> ConfigError:
    """Make the error for an offset commit that no Onceflow consumer wrote."""
    return ConfigError(
        "this offset was committed by another program",
        subject=subject,
        expected="the state of an Onceflow consumer in the commit's metadata",
        found=found,
        then="use another consumer group",
    )


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value

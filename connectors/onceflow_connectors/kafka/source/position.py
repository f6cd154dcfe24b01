"""Positions of the Kafka source: their JSON, and all arithmetic on them. Pure.

    {"clicks": {"id": "<topic id>", "partitions": {"0": 120, "1": 98}, "starts": {"1": 0}}}

`partitions` is how far a batch reads: the next offset of every partition that has been in a batch.
`starts` names the partitions that enter with this batch, and the offset at which they do; so a
batch knows where it begins even if no position before it had heard of them. A position of which no
batch has read anything yet, the initial one, has `starts` only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onceflow.contracts.source import Position, Split, TopicRanges
from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow.protocol.ledger import Range, canonical_json

Offsets: TypeAlias = Mapping[int, int]
"""partition -> offset."""

MAX_SPLIT_OFFSETS = 500_000
"""Offsets that one task reads, about a second of work: what a failed task costs to read again."""


@dataclass(frozen=True)
class TopicPosition:
    """Where one topic stands.

    Args:
        topic_id: changes when the topic is deleted and created again.
        ends: partitions that have been in a batch, and the next offset to read.
        starts: partitions that enter, and the offset at which they do.
    """

    topic_id: str
    ends: Offsets
    starts: Offsets

    @property
    def next_offsets(self) -> Offsets:
        """Where the batch after this position begins, for every partition."""
        return {**self.starts, **self.ends}

    @property
    def waiting(self) -> Offsets:
        """Partitions that have a start and have not been in a batch."""
        return {p: offset for p, offset in self.starts.items() if p not in self.ends}


_NOWHERE = TopicPosition("", ends={}, starts={})

Topics: TypeAlias = Mapping[str, TopicPosition]
"""topic -> position: a whole position, decoded."""


def decode(position: Position) -> Topics:
    """Read a position.

    Raises:
        CorruptionError: it is none that `encode` wrote.
    """
    try:
        return {
            topic: TopicPosition(
                str(fields["id"]), _offsets(fields["partitions"]), _offsets(fields["starts"])
            )
            for topic, fields in position.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(
            "unreadable position of a Kafka source",
            subject=canonical_json(position)[:200],
            expected='{topic: {"id", "partitions", "starts"}}',
            then=f"halting; restore the checkpoint, or {NEW_GENERATION}",
        ) from error


def encode(topics: Topics) -> Position:
    """Write a position. Equal positions become equal text, also by a `json.dumps` of others."""
    plain = {
        topic: {"id": at.topic_id, "partitions": at.ends, "starts": at.starts}
        for topic, at in topics.items()
    }
    # Keys become text before they are sorted: JSON orders "10" before "2".
    position: Position = json.loads(canonical_json(json.loads(canonical_json(plain))))
    return position


def ranges(start: Position | None, end: Position) -> TopicRanges:
    """Turn two positions into ranges of offsets; `Planner.ranges`.

    Raises:
        CorruptionError: `start` lacks a partition for which `end` names no start.
    """
    before = decode(start) if start is not None else {}
    return {
        topic: {
            partition: (_start(topic, partition, before, at), offset)
            for partition, offset in sorted(at.next_offsets.items())
        }
        for topic, at in sorted(decode(end).items())
    }


def at_end_of(batch: TopicRanges, topic_ids: Mapping[str, str]) -> Position:
    """The position at the end of a batch, which names every start."""
    return encode(
        {
            topic: TopicPosition(
                topic_ids[topic],
                ends={partition: end for partition, (_, end) in bounds.items()},
                starts={partition: start for partition, (start, _) in bounds.items()},
            )
            for topic, bounds in batch.items()
        }
    )


def splits(start: Position, end: Position) -> Sequence[Split]:
    """Parts of a long range come one round after the other.

    So a worker that ends its part goes on, as likely as not, where its consumer already is.
    """
    ids = {topic: at.topic_id for topic, at in decode(end).items()}
    cut = [
        (number, Split(topic, partition, *part, topic_id=ids[topic]))
        for topic, bounds in ranges(start, end).items()
        for partition, whole in bounds.items()
        for number, part in enumerate(_parts(whole))
    ]
    return [split for _, split in sorted(cut, key=lambda entry: entry[0])]


def _parts(whole: Range) -> Sequence[Range]:
    start, end = whole
    return [
        (low, min(end, low + MAX_SPLIT_OFFSETS)) for low in range(start, end, MAX_SPLIT_OFFSETS)
    ]


def _start(topic: str, partition: int, before: Topics, at: TopicPosition) -> int:
    earlier = before.get(topic, _NOWHERE)
    # A batch that reads nothing new repeats the position before it, with the starts named there.
    for known in (earlier.ends, at.starts, earlier.starts):
        if partition in known:
            return known[partition]
    raise CorruptionError(
        "a position tells no start",
        subject=f"{topic}-{partition}",
        expected="a start in this position, or an end in the one before",
        then=f"halting; restore the checkpoint, or {NEW_GENERATION}",
    )


def _offsets(value: Mapping[str, int]) -> Offsets:
    return {int(partition): int(offset) for partition, offset in value.items()}

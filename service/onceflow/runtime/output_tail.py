"""The end of the output topic: the newest batch of the pipeline in each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.protocol.identity import pipeline_tag
from onceflow.protocol.ledger import HeadEntry
from onceflow.protocol.record import HEADER_NAME, RecordHeader

Ours: TypeAlias = tuple[RecordHeader, ReadRecord]

FIRST_LOOK_BACK = 1_000
"""Offsets read from the end at first; ten times as many at each further look."""
MAX_LOOKS_BACK = 12
"""1,000 x 10^11 offsets: more than any partition holds."""


@dataclass(frozen=True)
class Tail:
    """The newest batch of the pipeline in one partition.

    Args:
        header: of the last record.
        first_sequence: of that batch in this partition.
        rows: key and value of the batch's records, in order.
    """

    header: RecordHeader
    first_sequence: int
    rows: tuple[tuple[bytes | None, bytes | None], ...]


def read_tails(head: HeadEntry, broker: Broker, deadline: Deadline) -> Mapping[int, Tail]:
    """Partition -> its newest batch, without partitions that have no record of the pipeline.

    Args:
        head: names pipeline and topic.
        broker: to read with.
        deadline: for reading everything.
    """
    return dict(_tails(head.sink.topic, pipeline_tag(head.pipeline), broker, deadline))


def _tails(topic: str, tag: int, broker: Broker, deadline: Deadline) -> Iterator[tuple[int, Tail]]:
    for partition, (start, _, end) in broker.offsets(topic, deadline).items():

        def read(begin: int, end: int, partition: int = partition) -> Iterator[ReadRecord]:
            return broker.read(topic, {partition: (begin, end)}, deadline)

        tail = _tail_of(partial(_read_ours, read, tag), start, end)
        if tail is not None:
            yield partition, tail


def _tail_of(read: Callable[[int, int], list[Ours]], start: int, end: int) -> Tail | None:
    """Read backwards in growing steps until the newest batch is wholly in sight."""
    look_back = FIRST_LOOK_BACK
    for _ in range(MAX_LOOKS_BACK):
        begin = max(start, end - look_back)
        ours = read(begin, end)
        is_whole = bool(ours) and ours[0][0].batch_id != ours[-1][0].batch_id
        if is_whole or begin == start:
            return _tail(ours)
        look_back *= 10
    return None


def _read_ours(
    read: Callable[[int, int], Iterator[ReadRecord]], tag: int, begin: int, end: int
) -> list[Ours]:
    found = []
    for record in read(begin, end):
        if packed := record.header(HEADER_NAME):
            header = RecordHeader.unpack(packed)
            if header.pipeline_tag == tag:
                found.append((header, record))
    return found


def _tail(ours: list[Ours]) -> Tail | None:
    if not ours:
        return None
    last = ours[-1][0]
    batch = [
        (h, r) for h, r in ours if (h.generation, h.batch_id) == (last.generation, last.batch_id)
    ]
    return Tail(last, batch[0][0].sequence, tuple((r.key, r.value) for _, r in batch))

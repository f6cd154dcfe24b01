"""Batches of the pipeline in the output topic, looked for from its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.protocol.digest import Row
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

    def is_whole(ours: list[Ours]) -> bool:
        return bool(ours) and _batch(ours[0]) != _batch(ours[-1])

    looks = _looks(head, broker, deadline, is_whole)
    return {partition: _tail(ours) for partition, ours in looks if ours}


def read_batch(head: HeadEntry, broker: Broker, deadline: Deadline) -> Iterator[Row]:
    """The rows of `head`'s batch, wherever it is in the output; none of what is deleted.

    Args:
        head: of the batch.
        broker: to read with.
        deadline: for reading everything behind it.
    """
    wanted = head.generation, head.batch.batch_id

    def is_before(ours: list[Ours]) -> bool:
        return bool(ours) and _batch(ours[0]) < wanted

    for partition, ours in _looks(head, broker, deadline, is_before):
        for found in ours:
            if _batch(found) == wanted:
                yield partition, found[1].key, found[1].value


def _looks(
    head: HeadEntry, broker: Broker, deadline: Deadline, is_enough: Callable[[list[Ours]], bool]
) -> Iterator[tuple[int, list[Ours]]]:
    """Partition -> the pipeline's records at its end, as many as are enough."""
    topic, tag = head.sink.topic, pipeline_tag(head.pipeline)
    for partition, (start, _, end) in broker.offsets(topic, deadline).items():
        look_back = FIRST_LOOK_BACK
        for _ in range(MAX_LOOKS_BACK):
            begin = max(start, end - look_back)
            ours = _read_ours(broker.read(topic, {partition: (begin, end)}, deadline), tag)
            if begin == start or is_enough(ours):
                yield partition, ours
                break
            look_back *= 10


def _read_ours(records: Iterator[ReadRecord], tag: int) -> list[Ours]:
    found = []
    for record in records:
        if packed := record.header(HEADER_NAME):
            header = RecordHeader.unpack(packed)
            if header.pipeline_tag == tag:
                found.append((header, record))
    return found


def _batch(ours: Ours) -> tuple[int, int]:
    header, _ = ours
    return header.generation, header.batch_id


def _tail(ours: list[Ours]) -> Tail:
    batch = [found for found in ours if _batch(found) == _batch(ours[-1])]
    rows = tuple((record.key, record.value) for _, record in batch)
    return Tail(ours[-1][0], batch[0][0].sequence, rows)

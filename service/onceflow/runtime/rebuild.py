"""Reconstructs a lost `head` from headers at the tail of the output, and the checkpoint.

The checkpoint tells what the last committed batch read; the output tells where the sequences stand
and, by the plan tag, that both speak of the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, ReadRecord
from onceflow.errors import CorruptionError
from onceflow.protocol.digest import RunningDigest
from onceflow.protocol.identity import BatchKey, pipeline_tag
from onceflow.protocol.ledger import HeadEntry, Range, RecordCounts
from onceflow.protocol.record import HEADER_NAME, RecordHeader
from onceflow.runtime.checkpoint import Checkpoint

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


def rebuild_head(
    blank: HeadEntry, broker: Broker, checkpoint: Checkpoint, deadline: Deadline
) -> HeadEntry:
    """Make the `head` of the last batch that was committed.

    Args:
        blank: a registration of this pipeline: names, partitions and layout.
        broker: to read the output with.
        checkpoint: of the pipeline; must have planned the batch.
        deadline: for reading the tails.

    Raises:
        CorruptionError: output and checkpoint do not tell the same story; nothing was written.
    """
    tails = dict(_tails(blank, broker, deadline))
    facts = checkpoint.facts()
    newest = max((tail.header.batch_id for tail in tails.values()), default=facts.done)
    # A batch without output leaves no trace in the topic, but Spark logged it after its commit.
    batch_id = max(newest, facts.done)
    if batch_id > facts.planned:
        raise CorruptionError(
            "the checkpoint is older than the output; the ledger cannot be rebuilt",
            expected=f"offsets/{batch_id} in the checkpoint",
            found=f"planned batch {facts.planned}",
            then="start a new generation on another checkpoint",
        )
    plan = checkpoint.plan(batch_id)
    parts = {p: tail for p, tail in tails.items() if tail.header.batch_id == batch_id}
    for partition, tail in parts.items():
        if tail.header.plan_tag != plan.tag():
            raise CorruptionError(
                "the checkpoint planned this batch with other input than the output was made of",
                subject=f"batch {batch_id}, partition {partition}",
                expected=f"plan tag {tail.header.plan_tag}",
                found=f"plan tag {plan.tag()}",
                then="start a new generation on another checkpoint",
            )
    written = sum(len(tail.rows) for tail in parts.values())
    return replace(
        blank,
        generation=max((t.header.generation for t in tails.values()), default=blank.generation),
        batch=BatchKey(blank.batch.query_id, batch_id),
        plan=plan,
        sink=replace(blank.sink, sequence=_sequences(tails, batch_id)),
        records=RecordCounts(written=written),
        digest=_digest(parts),
    )


def _sequences(tails: Mapping[int, Tail], batch_id: int) -> Mapping[int, Range]:
    return {
        partition: (
            tail.first_sequence if tail.header.batch_id == batch_id else tail.header.sequence + 1,
            tail.header.sequence,
        )
        for partition, tail in tails.items()
    }


def _digest(parts: Mapping[int, Tail]) -> str:
    digest = RunningDigest()
    for partition in sorted(parts):
        for key, value in parts[partition].rows:
            digest.add((partition, key, value))
    return digest.hexdigest()


def _tails(blank: HeadEntry, broker: Broker, deadline: Deadline) -> Iterator[tuple[int, Tail]]:
    topic, tag = blank.sink.topic, pipeline_tag(blank.pipeline)
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
        if HEADER_NAME in record.headers:
            header = RecordHeader.unpack(record.headers[HEADER_NAME])
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

"""Reconstructs a lost `head` from headers at the tail of the output, and the checkpoint.

The checkpoint tells what the last committed batch read; the output tells where the sequences stand
and, by the plan tag, that both speak of the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.errors import CorruptionError
from onceflow.protocol.digest import RunningDigest
from onceflow.protocol.identity import BatchKey
from onceflow.protocol.ledger import HeadEntry, Range, RecordCounts
from onceflow.protocol.order import SORTED
from onceflow.runtime.checkpoint import Checkpoint
from onceflow.runtime.output_tail import Tail, read_tails


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
    tails = read_tails(blank, broker, deadline)
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
        order=SORTED,
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
    """Under `SORTED`, as the entry says: the output does not tell what it was ordered by."""
    digest = RunningDigest()
    for partition in sorted(parts):
        for key, value in sorted(parts[partition].rows, key=_by_content):
            digest.add((partition, key, value))
    return digest.hexdigest()


def _by_content(row: tuple[bytes | None, bytes | None]) -> tuple[bool, bytes, bool, bytes]:
    key, value = row
    return key is not None, key or b"", value is not None, value or b""

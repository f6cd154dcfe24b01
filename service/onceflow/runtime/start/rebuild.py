"""Makes a `head` without a ledger, from headers at the tail of the output.

It also needs the checkpoint, which tells what the last committed batch read; the output tells where
the sequences stand and, by the plan tag, that both speak of the same batch. A new generation needs
the output alone (`protocol.tails.new_generation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.digest import Row, digest_of
from onceflow.protocol.identity import BatchKey
from onceflow.protocol.ledger import NO_PLAN, NOTHING_COMMITTED, BatchPlan, HeadEntry, RecordCounts
from onceflow.protocol.order import SORTED
from onceflow.protocol.record import BatchOrder
from onceflow.protocol.tails import OutputTails, last_batch, numbered_on, unlike
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.topics.output_tail import read_batch, read_tails


def rebuild_head(
    blank: HeadEntry, broker: Broker, checkpoint: Checkpoint, deadline: Deadline
) -> HeadEntry:
    """Make the `head` of the last batch that was committed, from a registration without one.

    The checkpoint must have planned the batch.

    Raises:
        CorruptionError: output and checkpoint do not tell the same story; nothing was written.
    """
    tails = read_tails(blank, broker, deadline)
    facts = checkpoint.facts()
    batch = last_batch(tails, facts, blank.generation)
    generation, batch_id = batch
    plan = NO_PLAN if batch_id == NOTHING_COMMITTED else checkpoint.plan(batch_id)
    _check_tags(tails, batch, plan)
    if tails.newest not in {None, batch}:
        _check_older(tails, facts, checkpoint)
    head = replace(
        numbered_on(blank, tails, batch),
        generation=generation,
        batch=BatchKey(blank.batch.query_id, batch_id),
        plan=plan,
        order=SORTED,
    )
    rows: Sequence[Row] = ()
    if tails.of_batch(batch):
        # Its records tell their lineage themselves, whatever the next ones will be written in.
        found = replace(head, lineage=next(iter(tails.of_batch(batch).values())).header.lineage)
        # As `SORTED` says: the output does not tell what the batch was ordered by.
        rows = sorted(read_batch(found, broker, deadline), key=_by_content)
    return replace(head, records=RecordCounts(written=len(rows)), digest=digest_of(rows))


def _check_older(tails: OutputTails, facts: CheckpointFacts, checkpoint: Checkpoint) -> None:
    """The checkpoint must know the newest batch of the output, or it is of another generation."""
    newest = tails.newest
    if newest is None:
        return
    generation, batch_id = newest
    if checkpoint.has_plan(batch_id):
        _check_tags(tails, newest, checkpoint.plan(batch_id))
    elif generation > 1:
        raise unlike(
            "it is unknown whether this checkpoint is that of the newest generation",
            f"generation {generation}",
            f"offsets/{batch_id}, the newest batch of the output",
            f"offsets from later batches only, up to {facts.planned}",
        )


def _check_tags(tails: OutputTails, batch: BatchOrder, plan: BatchPlan) -> None:
    for partition, tail in tails.of_batch(batch).items():
        if tail.header.plan_tag != plan.tag():
            raise unlike(
                "the checkpoint planned this batch with other input than the output was made of",
                f"batch {batch[1]}, partition {partition}",
                f"plan tag {tail.header.plan_tag}",
                f"plan tag {plan.tag()}",
            )


def _by_content(row: Row) -> tuple[int, bool, bytes, bool, bytes]:
    partition, key, value = row
    return partition, key is not None, key or b"", value is not None, value or b""

"""The `head` that a copy of a checkpoint begins with: a fork's, or that of moved state. Pure."""

from __future__ import annotations

from dataclasses import replace

from onceflow.protocol.digest import digest_of
from onceflow.protocol.identity import BatchKey, FencingToken
from onceflow.protocol.ledger import (
    FIRST_GENERATION,
    BatchPlan,
    HeadEntry,
    Origin,
    RecordCounts,
    SinkState,
)


def forked(entry: HeadEntry, pipeline: str, query_id: str, sink: SinkState) -> HeadEntry:
    """The position of `entry` under another name: it has written nothing, and counts nothing."""
    origin = Origin.of(entry)
    return replace(
        entry.written_again(FencingToken(0), "", f"forked after {origin}"),
        pipeline=pipeline,
        generation=FIRST_GENERATION,
        batch=BatchKey(query_id, entry.batch.batch_id),
        sink=sink,
        records=RecordCounts(),
        totals=RecordCounts(),
        waivers=(),
        at_risk={},
        lineage=0,
        origin=origin,
    )


def moved(entry: HeadEntry, batch: BatchKey, plan: BatchPlan, note: str) -> HeadEntry:
    """The position of `entry` after a batch without input, which moved the state elsewhere."""
    again = entry.written_again(FencingToken(0), "", note)
    return replace(
        again,
        batch=batch,
        plan=plan,
        records=RecordCounts(),
        digest=digest_of(()),
        origin=Origin.of(entry),
        state=None,
    )


def begun_from(copied: HeadEntry, blank: HeadEntry) -> HeadEntry:
    """The registration `blank` at the position of a copy, as its first start writes it."""
    return replace(
        copied,
        token=blank.token,
        run_id=blank.run_id,
        sink=blank.sink,
        plan_hash=blank.plan_hash,
        plan_parts=blank.plan_parts,
        delivery=blank.delivery,
        lineage=blank.lineage,
        next_order=blank.next_order,
    )

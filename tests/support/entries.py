"""Ledger entries for tests of the pure protocol."""

from __future__ import annotations

from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState


def plan(start: int, end: int, *, watermark_ms: int = 5, clock_ms: int = 9) -> BatchPlan:
    """One source with one partition."""
    return BatchPlan({"clicks": {"input": {0: (start, end)}}}, watermark_ms, clock_ms)


def head(
    batch_id: int,
    start: int,
    end: int,
    *,
    query_id: str = "q",
    generation: int = 1,
    digest: str = "d",
) -> HeadEntry:
    """A batch that read [start, end) and wrote one record."""
    return HeadEntry(
        pipeline="views",
        generation=generation,
        batch=BatchKey(query_id, batch_id),
        token=FencingToken(1),
        run_id="r",
        plan=plan(start, end),
        sink=SinkState("views", 1, Layout(1, 3), {0: (batch_id + 1, batch_id + 1)}),
        records=RecordCounts(read=end - start, written=1),
        digest=digest,
        plan_hash="h",
    )

"""Checkpoint against ledger: each row of the table in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import pytest

from onceflow.errors import CorruptionError, LineageError, OnceflowError
from onceflow.protocol.compare import NOT_WRITTEN, CheckpointFacts, Decision, Remedy, compare
from onceflow.protocol.fork import moved
from onceflow.protocol.identity import BatchKey
from onceflow.protocol.ledger import NOTHING_COMMITTED, BatchPlan, HeadEntry
from onceflow.protocol.record import Flag, RecordHeader
from tests.support.entries import head, plan

Outcome: TypeAlias = tuple[Decision, type[OnceflowError] | None, tuple[Remedy, ...]]

ADOPT, NEW, REBUILD = Remedy.ADOPT, Remedy.NEW_GENERATION, Remedy.REBUILD
REGISTER: Outcome = (Decision.REGISTER, None, ())
GO_ON: Outcome = (Decision.GO_ON, None, ())
REPAIR_PLAN: Outcome = (Decision.REPAIR_PLAN, None, ())


def foreign(*remedies: Remedy) -> Outcome:
    return Decision.HALT, LineageError, remedies


def corrupt(*remedies: Remedy) -> Outcome:
    return Decision.HALT, CorruptionError, remedies


class Row(NamedTuple):
    """A checkpoint, a ledger and an output, and what follows from them."""

    checkpoint: CheckpointFacts
    head: HeadEntry | None
    outcome: Outcome
    written: Mapping[int, RecordHeader] = NOT_WRITTEN


def checkpoint(planned: int, done: int, *plans: BatchPlan) -> CheckpointFacts:
    """Query q; `plans` are those of the last batches."""
    first = planned - len(plans) + 1
    return CheckpointFacts("q", planned, done, dict(enumerate(plans, start=first)))


NO_CHECKPOINT, BLANK = CheckpointFacts(None), CheckpointFacts("q")
DONE_4 = checkpoint(4, 4, plan(20, 30))
REGISTERED = head(NOTHING_COMMITTED, 0, 0)
HEAD_3, HEAD_4, HEAD_5, HEAD_6 = (head(n, 10 * (n - 2), 10 * (n - 1)) for n in range(3, 7))
OF_OLD = head(4, 20, 30, query_id="old")
MOVED = replace(
    checkpoint(5, 5, plan(30, 30)), copied=moved(OF_OLD, BatchKey("q", 5), plan(30, 30), "moved")
)
FORK = replace(DONE_4, copied=HEAD_4)
WRITTEN = {3: RecordHeader(Flag(0), 1, 2, 7, 4, 55)}
AHEAD = RecordHeader(Flag(0), 1, 1, 7, 6, 80, HEAD_4.lineage)
"""In batch 6 of the first generation, which a ledger that was set back to batch 4 does not know."""
ROWS = {
    "new": Row(NO_CHECKPOINT, None, REGISTER),
    "new, ledger exists": Row(NO_CHECKPOINT, HEAD_4, foreign(NEW)),
    "new, registered by another": Row(NO_CHECKPOINT, REGISTERED, foreign(NEW)),
    "nothing planned, no head": Row(BLANK, None, REGISTER),
    "nothing planned, registered": Row(BLANK, REGISTERED, REGISTER),
    "nothing planned, another query": Row(CheckpointFacts("p"), REGISTERED, foreign(NEW)),
    "the only plan is lost": Row(BLANK, head(0, 0, 10), corrupt(ADOPT, NEW)),
    "all plans are lost": Row(BLANK, HEAD_4, foreign(NEW)),
    "another query": Row(checkpoint(4, 4), head(4, 20, 30, query_id="p"), foreign()),
    "ledger and checkpoint lost, output kept": Row(NO_CHECKPOINT, None, foreign(NEW), WRITTEN),
    "ledger lost, nothing planned, output kept": Row(BLANK, None, foreign(NEW), WRITTEN),
    "ledger lost": Row(checkpoint(4, 4), None, corrupt(REBUILD)),
    "ledger behind": Row(DONE_4, HEAD_3, corrupt(REBUILD)),
    "ledger and checkpoint set back, output kept": Row(DONE_4, HEAD_4, corrupt(), {0: AHEAD}),
    "ledger set back under a checkpoint that planned the newest batch": Row(
        checkpoint(6, 5, plan(40, 50)), HEAD_5, corrupt(REBUILD), {0: AHEAD}
    ),
    "ledger set back, and another checkpoint": Row(NO_CHECKPOINT, HEAD_4, corrupt(NEW), {0: AHEAD}),
    "the newest batch of the output is that of the ledger": Row(
        checkpoint(6, 6, plan(40, 50)), HEAD_6, GO_ON, {0: AHEAD, 1: replace(AHEAD, batch_id=5)}
    ),
    "a forgotten lineage came further": Row(DONE_4, HEAD_4, GO_ON, {0: replace(AHEAD, lineage=9)}),
    "records that at least once wrote before its ledger entry": Row(
        DONE_4, HEAD_4, GO_ON, {0: replace(AHEAD, flags=Flag.AT_LEAST_ONCE)}
    ),
    "done everywhere": Row(DONE_4, HEAD_4, GO_ON),
    "done everywhere, other ranges": Row(checkpoint(4, 4, plan(20, 31)), HEAD_4, corrupt(ADOPT)),
    "done everywhere, other clock": Row(checkpoint(4, 4, plan(20, 30, clock_ms=10)), HEAD_4, GO_ON),
    "planned further": Row(checkpoint(5, 4, plan(20, 30), plan(30, 40)), HEAD_4, GO_ON),
    "first batch planned": Row(checkpoint(0, -1, plan(0, 10)), REGISTERED, GO_ON),
    "plans are purged": Row(CheckpointFacts("q", 5, 4), HEAD_5, GO_ON),
    "committed in Kafka alone": Row(checkpoint(5, 4, plan(30, 40)), HEAD_5, GO_ON),
    "committed in Kafka alone, other ranges": Row(
        checkpoint(5, 4, plan(30, 41)), HEAD_5, REPAIR_PLAN
    ),
    "committed in Kafka alone, other clock": Row(
        checkpoint(5, 4, plan(30, 40, clock_ms=10)), HEAD_5, REPAIR_PLAN
    ),
    "committed in Kafka alone, other watermark": Row(
        checkpoint(5, 4, plan(30, 40, watermark_ms=6)), HEAD_5, REPAIR_PLAN
    ),
    "committed in Kafka alone, other parameters": Row(
        checkpoint(5, 4, replace(plan(30, 40), parameters={"limit": "7"})), HEAD_5, REPAIR_PLAN
    ),
    "newest plan lost": Row(DONE_4, HEAD_5, corrupt(ADOPT)),
    "checkpoint too old": Row(checkpoint(4, 4), HEAD_6, foreign()),
    "checkpoint too old, planned": Row(checkpoint(5, 4), HEAD_6, foreign()),
    "entry of the commit log lost before a plan": Row(
        checkpoint(5, 3, plan(30, 40)), HEAD_4, REPAIR_PLAN
    ),
    "entry of the commit log lost, and its batch not committed": Row(
        checkpoint(5, 3), HEAD_3, corrupt()
    ),
    "two entries of the commit log lost": Row(checkpoint(5, 3), HEAD_5, corrupt()),
    "a fork": Row(FORK, None, REGISTER),
    "a fork, registered": Row(FORK, HEAD_4, GO_ON),
    "a fork, and output of its name": Row(FORK, None, foreign(), WRITTEN),
    "a fork that has planned a batch, ledger lost": Row(
        replace(FORK, planned=5), None, corrupt(REBUILD)
    ),
    "a fork that has done a batch, ledger lost": Row(
        replace(FORK, planned=5, done=5), None, corrupt(REBUILD)
    ),
    "a fork, and a ledger of another query": Row(FORK, head(4, 20, 30, query_id="p"), foreign()),
    "a fork that has lost the end of its commit log": Row(
        replace(FORK, done=3), None, corrupt(REBUILD)
    ),
    "moved state, right after its origin": Row(MOVED, OF_OLD, REGISTER),
    "moved state, registered": Row(MOVED, head(5, 30, 30), GO_ON),
    "moved state, and its origin went on": Row(MOVED, head(5, 30, 40, query_id="old"), foreign()),
    "moved state, and a new generation of its origin": Row(
        MOVED, replace(OF_OLD, generation=2), foreign()
    ),
    "moved state, ledger lost": Row(MOVED, None, corrupt(REBUILD)),
    "moved state, of which something was planned before a registration": Row(
        replace(MOVED, planned=6), OF_OLD, foreign()
    ),
    "plan behind": Row(checkpoint(3, 4), HEAD_4, corrupt()),
    "plan far ahead": Row(checkpoint(6, 4), HEAD_4, corrupt()),
}
OPTIONS = {
    ADOPT: "--adopt --reason",
    NEW: "--new-generation --reason",
    REBUILD: "onceflow ledger rebuild FILE --reason",
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_row_of_the_table(row: Row) -> None:
    decision, kind, remedies = row.outcome
    found = compare(row.checkpoint, row.head, written=row.written)
    assert (found.decision, found.remedies) == (decision, remedies)
    assert type(found.error) is (kind or type(None))
    if found.error:
        assert found.error.expected
        assert found.error.found
        assert found.error.then.startswith("halting")
        assert all(OPTIONS[remedy] in str(found.error) for remedy in remedies)


def test_the_forgotten_output_is_named_by_its_newest_record() -> None:
    error = compare(BLANK, None, written=WRITTEN).error
    assert "sequence 55 of generation 2 in partition 3" in str(error)

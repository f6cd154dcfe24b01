"""Checkpoint against ledger: each row of the table in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from onceflow.errors import CorruptionError, LineageError, OnceflowError
from onceflow.protocol.compare import CheckpointFacts, Decision, Remedy, compare
from onceflow.protocol.ledger import NOTHING_COMMITTED, BatchPlan, HeadEntry
from onceflow.protocol.record import Flag, RecordHeader
from tests.support.entries import head, plan

REGISTERED = head(NOTHING_COMMITTED, 0, 0)
ADOPT, NEW, REBUILD = Remedy.ADOPT, Remedy.NEW_GENERATION, Remedy.REBUILD


@dataclass(frozen=True)
class Row:
    """One row: what is found, and what follows from it."""

    name: str
    checkpoint: CheckpointFacts
    head: HeadEntry | None
    decision: Decision
    error: type[OnceflowError] | None = None
    remedies: tuple[Remedy, ...] = ()
    written: Mapping[int, RecordHeader] = field(default_factory=dict)


def checkpoint(planned: int, done: int, *plans: BatchPlan) -> CheckpointFacts:
    """Query q; `plans` are those of the last batches."""
    first = planned - len(plans) + 1
    return CheckpointFacts("q", planned, done, dict(enumerate(plans, start=first)))


WRITTEN = {3: RecordHeader(Flag(0), 1, 2, 7, 4, 55)}
AHEAD = RecordHeader(Flag(0), 1, 1, 7, 6, 80, head(4, 20, 30).lineage)
"""Of batch 6 of the first generation, as a ledger that was set back to batch 4 does not know it."""
NEW_CHECKPOINT = CheckpointFacts(None)
BLANK = CheckpointFacts("q")
ROWS = [
    Row("new", NEW_CHECKPOINT, None, Decision.REGISTER),
    Row(
        "ledger and checkpoint lost, output kept",
        NEW_CHECKPOINT,
        None,
        Decision.HALT,
        LineageError,
        (NEW,),
        WRITTEN,
    ),
    Row(
        "ledger lost, nothing planned, output kept",
        BLANK,
        None,
        Decision.HALT,
        LineageError,
        (NEW,),
        WRITTEN,
    ),
    Row(
        "ledger and checkpoint set back, output kept",
        checkpoint(4, 4, plan(20, 30)),
        head(4, 20, 30),
        Decision.HALT,
        CorruptionError,
        (),
        {0: AHEAD},
    ),
    Row(
        "ledger set back under a checkpoint that planned the newest batch",
        checkpoint(6, 5, plan(40, 50)),
        head(5, 30, 40),
        Decision.HALT,
        CorruptionError,
        (REBUILD,),
        {0: AHEAD},
    ),
    Row(
        "ledger set back, and another checkpoint",
        NEW_CHECKPOINT,
        head(4, 20, 30),
        Decision.HALT,
        CorruptionError,
        (NEW,),
        {0: AHEAD},
    ),
    Row(
        "the newest batch of the output is that of the ledger",
        checkpoint(6, 6, plan(40, 50)),
        head(6, 40, 50),
        Decision.GO_ON,
        written={0: AHEAD, 1: replace(AHEAD, batch_id=5)},
    ),
    Row(
        "a forgotten lineage came further",
        checkpoint(4, 4, plan(20, 30)),
        head(4, 20, 30),
        Decision.GO_ON,
        written={0: replace(AHEAD, lineage=9)},
    ),
    Row(
        "records that at least once wrote before its ledger entry",
        checkpoint(4, 4, plan(20, 30)),
        head(4, 20, 30),
        Decision.GO_ON,
        written={0: replace(AHEAD, flags=Flag.AT_LEAST_ONCE)},
    ),
    Row("new, ledger exists", NEW_CHECKPOINT, head(4, 20, 30), Decision.HALT, LineageError, (NEW,)),
    Row(
        "new, registered by another",
        NEW_CHECKPOINT,
        REGISTERED,
        Decision.HALT,
        LineageError,
        (NEW,),
    ),
    Row("nothing planned, no head", BLANK, None, Decision.REGISTER),
    Row("nothing planned, registered", BLANK, REGISTERED, Decision.REGISTER),
    Row(
        "nothing planned, another query",
        CheckpointFacts("p"),
        REGISTERED,
        Decision.HALT,
        LineageError,
        (NEW,),
    ),
    Row(
        "the only plan is lost", BLANK, head(0, 0, 10), Decision.HALT, CorruptionError, (ADOPT, NEW)
    ),
    Row("all plans are lost", BLANK, head(4, 20, 30), Decision.HALT, LineageError, (NEW,)),
    Row("done everywhere", checkpoint(4, 4, plan(20, 30)), head(4, 20, 30), Decision.GO_ON),
    Row(
        "planned further",
        checkpoint(5, 4, plan(20, 30), plan(30, 40)),
        head(4, 20, 30),
        Decision.GO_ON,
    ),
    Row("first batch planned", checkpoint(0, -1, plan(0, 10)), REGISTERED, Decision.GO_ON),
    Row(
        "committed in Kafka alone", checkpoint(5, 4, plan(30, 40)), head(5, 30, 40), Decision.GO_ON
    ),
    Row("plans are purged", CheckpointFacts("q", 5, 4), head(5, 30, 40), Decision.GO_ON),
    Row(
        "committed in Kafka alone, other ranges",
        checkpoint(5, 4, plan(30, 41)),
        head(5, 30, 40),
        Decision.REPAIR_PLAN,
    ),
    Row(
        "committed in Kafka alone, other clock",
        checkpoint(5, 4, plan(30, 40, clock_ms=10)),
        head(5, 30, 40),
        Decision.REPAIR_PLAN,
    ),
    Row(
        "committed in Kafka alone, other watermark",
        checkpoint(5, 4, plan(30, 40, watermark_ms=6)),
        head(5, 30, 40),
        Decision.REPAIR_PLAN,
    ),
    Row(
        "done everywhere, other ranges",
        checkpoint(4, 4, plan(20, 31)),
        head(4, 20, 30),
        Decision.HALT,
        CorruptionError,
        (ADOPT,),
    ),
    Row(
        "done everywhere, other clock",
        checkpoint(4, 4, plan(20, 30, clock_ms=10)),
        head(4, 20, 30),
        Decision.GO_ON,
    ),
    Row(
        "ledger behind",
        checkpoint(4, 4, plan(20, 30)),
        head(3, 10, 20),
        Decision.HALT,
        CorruptionError,
        (REBUILD,),
    ),
    Row("ledger lost", checkpoint(4, 4), None, Decision.HALT, CorruptionError, (REBUILD,)),
    Row(
        "newest plan lost",
        checkpoint(4, 4, plan(20, 30)),
        head(5, 30, 40),
        Decision.HALT,
        CorruptionError,
        (ADOPT,),
    ),
    Row("checkpoint too old", checkpoint(4, 4), head(6, 40, 50), Decision.HALT, LineageError),
    Row(
        "checkpoint too old, planned",
        checkpoint(5, 4),
        head(6, 40, 50),
        Decision.HALT,
        LineageError,
    ),
    Row(
        "another query",
        checkpoint(4, 4),
        head(4, 20, 30, query_id="p"),
        Decision.HALT,
        LineageError,
    ),
    Row(
        "entry of the commit log lost behind a plan",
        checkpoint(5, 3, plan(30, 40)),
        head(4, 20, 30),
        Decision.REPAIR_PLAN,
    ),
    Row(
        "entry of the commit log lost, and its batch not committed",
        checkpoint(5, 3),
        head(3, 10, 20),
        Decision.HALT,
        CorruptionError,
    ),
    Row(
        "two entries of the commit log lost",
        checkpoint(5, 3),
        head(5, 30, 40),
        Decision.HALT,
        CorruptionError,
    ),
    Row("plan behind", checkpoint(3, 4), head(4, 20, 30), Decision.HALT, CorruptionError),
    Row("plan far ahead", checkpoint(6, 4), head(4, 20, 30), Decision.HALT, CorruptionError),
]
CURES = {
    ADOPT: Decision.REPAIR_PLAN,
    NEW: Decision.NEW_GENERATION,
    REBUILD: Decision.REBUILD,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_of_the_table(row: Row) -> None:
    found = compare(row.checkpoint, row.head, written=row.written)
    assert (found.decision, found.remedies) == (row.decision, row.remedies)
    assert type(found.error) is (row.error or type(None))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("remedy", Remedy)
def test_a_remedy_is_accepted_only_where_it_was_offered(row: Row, remedy: Remedy) -> None:
    found = compare(row.checkpoint, row.head, remedy, row.written)
    if remedy in row.remedies:
        assert (found.decision, found.error) == (CURES[remedy], None)
    else:
        assert found.decision is Decision.HALT
        assert isinstance(found.error, LineageError)
        assert found.error.subject == remedy.value
        assert found.error.expected == (
            ", ".join(r.value for r in row.remedies) or "a start without a remedy"
        )


@pytest.mark.parametrize("row", [r for r in ROWS if r.error], ids=lambda row: row.name)
def test_a_halt_tells_what_was_expected_and_found(row: Row) -> None:
    error = compare(row.checkpoint, row.head, written=row.written).error
    assert error is not None
    assert error.expected
    assert error.found
    assert error.then.startswith("halting")


@pytest.mark.parametrize("row", [r for r in ROWS if r.error], ids=lambda row: row.name)
def test_an_empty_checkpoint_and_a_new_generation_work_wherever_a_message_leads_there(
    row: Row,
) -> None:
    error = compare(row.checkpoint, row.head, written=row.written).error
    assert error is not None
    found = compare(CheckpointFacts(None), row.head, NEW, row.written)
    if row.head is not None or row.written:
        assert (found.decision, found.error) == (Decision.NEW_GENERATION, None)
    else:
        assert "rebuild" in error.then
        assert compare(CheckpointFacts(None), None).decision is Decision.REGISTER


@pytest.mark.parametrize("row", [r for r in ROWS if r.error], ids=lambda row: row.name)
def test_a_message_names_the_options_of_every_remedy_that_it_offers(row: Row) -> None:
    error = compare(row.checkpoint, row.head, written=row.written).error
    named = {NEW: "--new-generation --reason", ADOPT: "--adopt --reason"}
    for remedy in row.remedies:
        assert named.get(remedy, "onceflow ledger rebuild FILE --reason") in str(error)


def test_the_forgotten_output_is_told_by_its_newest_record() -> None:
    error = compare(BLANK, None, written=WRITTEN).error
    assert "sequence 55 of generation 2 in partition 3" in str(error)

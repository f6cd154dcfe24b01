"""What an operator may ask for when a start was refused, over every small history."""

from __future__ import annotations

from itertools import product

import pytest

from onceflow.errors import LineageError
from onceflow.protocol.compare import CheckpointFacts, Decision, Remedy, compare
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.record import Flag, RecordHeader

BATCHES = range(-1, 4)
PLAN = BatchPlan({"clicks": {"clicks": {0: (0, 10)}}}, 0, 1)


def head_at(batch_id: int, query_id: str) -> HeadEntry:
    sink = SinkState("views", 1, Layout(1, 3))
    batch = BatchKey(query_id, batch_id)
    return HeadEntry(
        "p", 1, batch, FencingToken(1), "run", PLAN, sink, RecordCounts(), "digest", "plan"
    )


WRITTEN = {0: RecordHeader(Flag(0), 1, 1, 7, 2, 9)}
HISTORIES = [
    (CheckpointFacts(query_id, planned, done), head)
    for query_id, planned, done in product([None, "ours"], BATCHES, BATCHES)
    if done in {planned, planned - 1} and done >= -1 and (query_id or planned == -1)
    for head in [None, *(head_at(n, query) for n, query in product(BATCHES, ["ours", "other"]))]
]


def name(value: object) -> str | None:
    if isinstance(value, CheckpointFacts):
        return f"planned {value.planned} done {value.done}" if value.query_id else "no checkpoint"
    if isinstance(value, HeadEntry):
        return f"head {value.batch.batch_id} of {value.batch.query_id}"
    return None


@pytest.mark.parametrize(("checkpoint", "head"), HISTORIES, ids=name)
def test_a_new_generation_never_begins_on_state_of_another(
    checkpoint: CheckpointFacts, head: HeadEntry | None
) -> None:
    decision = compare(checkpoint, head, Remedy.NEW_GENERATION).decision

    assert decision is Decision.HALT or checkpoint.planned == -1


@pytest.mark.parametrize("remedy", Remedy)
@pytest.mark.parametrize(("checkpoint", "head"), HISTORIES, ids=name)
def test_a_remedy_is_taken_exactly_where_it_is_offered(
    checkpoint: CheckpointFacts, head: HeadEntry | None, remedy: Remedy
) -> None:
    plain = compare(checkpoint, head)
    remedied = compare(checkpoint, head, remedy)

    assert (remedied.decision is not Decision.HALT) == (remedy in plain.remedies)
    if remedied.decision is Decision.HALT:
        assert isinstance(remedied.error, LineageError)
        assert remedied.error.subject == remedy.value


@pytest.mark.parametrize(("checkpoint", "head"), HISTORIES, ids=name)
def test_only_a_halt_has_remedies_and_always_a_reason(
    checkpoint: CheckpointFacts, head: HeadEntry | None
) -> None:
    found = compare(checkpoint, head)

    is_halt = found.decision is Decision.HALT
    assert is_halt == (found.error is not None)
    assert is_halt or not found.remedies


@pytest.mark.parametrize(("checkpoint", "head"), HISTORIES, ids=name)
def test_nothing_registers_over_an_output(
    checkpoint: CheckpointFacts, head: HeadEntry | None
) -> None:
    """A registration without a `head` begins at sequence 1, which readers take for repeats."""
    for remedy in [None, *Remedy]:
        found = compare(checkpoint, head, remedy, WRITTEN)
        assert found.decision is not Decision.REGISTER or head is not None


@pytest.mark.parametrize(("checkpoint", "head"), HISTORIES, ids=name)
def test_a_new_generation_on_an_empty_checkpoint_is_always_a_way_on(
    checkpoint: CheckpointFacts, head: HeadEntry | None
) -> None:
    if compare(checkpoint, head, written=WRITTEN).decision is Decision.HALT:
        empty = CheckpointFacts(None)
        found = compare(empty, head, Remedy.NEW_GENERATION, WRITTEN)
        assert found.decision is Decision.NEW_GENERATION

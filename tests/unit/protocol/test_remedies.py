"""The remedies for a start that was refused, over every small history."""

from __future__ import annotations

from itertools import product

import pytest

from onceflow.errors import LineageError
from onceflow.protocol.compare import NOT_WRITTEN, CheckpointFacts, Decision, Remedy, compare
from onceflow.protocol.fork import moved
from onceflow.protocol.identity import BatchKey
from onceflow.protocol.record import Flag, RecordHeader
from tests.support.entries import head, plan

BATCHES = range(-1, 4)
WRITTEN = {0: RecordHeader(Flag(0), 1, 1, 7, 2, 9)}
HEADS = [None, *(head(n, 0, 10, query_id=q) for n, q in product(BATCHES, ["ours", "other"]))]
MOVED = moved(head(0, 0, 10, query_id="other"), BatchKey("ours", 1), plan(10, 10), "moved")
CHECKPOINTS = [
    CheckpointFacts(None),
    *(CheckpointFacts("ours", p, d) for p, d in product(BATCHES, BATCHES) if d in {p, p - 1}),
    *(CheckpointFacts("ours", p, 1, copied=head(1, 0, 10, query_id="ours")) for p in (1, 2)),
    CheckpointFacts("ours", 1, 1, copied=MOVED),
]
HISTORIES = [*product(CHECKPOINTS, HEADS, [NOT_WRITTEN, WRITTEN])]
CURES = {
    Remedy.ADOPT: Decision.REPAIR_PLAN,
    Remedy.NEW_GENERATION: Decision.NEW_GENERATION,
    Remedy.REBUILD: Decision.REBUILD,
}


@pytest.mark.parametrize("remedy", Remedy)
def test_a_remedy_is_taken_exactly_where_it_is_offered(remedy: Remedy) -> None:
    for checkpoint, entry, written in HISTORIES:
        offered = compare(checkpoint, entry, written=written).remedies
        found = compare(checkpoint, entry, remedy, written)
        if remedy in offered:
            assert (found.decision, found.error) == (CURES[remedy], None)
        else:
            assert found.decision is Decision.HALT
            assert isinstance(found.error, LineageError)
            assert found.error.subject == remedy.value
            names = ", ".join(each.value for each in offered)
            assert found.error.expected == (names or "a start without a remedy")


def test_only_a_halt_has_remedies_and_always_a_reason() -> None:
    for checkpoint, entry, written in HISTORIES:
        found = compare(checkpoint, entry, written=written)
        is_halt = found.decision is Decision.HALT
        assert is_halt == (found.error is not None)
        assert is_halt or not found.remedies


def test_a_new_generation_never_begins_on_state_of_another() -> None:
    for checkpoint, entry, written in HISTORIES:
        found = compare(checkpoint, entry, Remedy.NEW_GENERATION, written)
        assert found.decision is Decision.HALT or checkpoint.planned == -1


@pytest.mark.parametrize("remedy", [None, *Remedy])
def test_nothing_registers_over_an_output(remedy: Remedy | None) -> None:
    """A registration without a `head` begins at sequence 1, which readers take for repeats."""
    for checkpoint in CHECKPOINTS:
        found = compare(checkpoint, None, remedy, WRITTEN)
        assert found.decision is not Decision.REGISTER


def test_a_new_generation_on_an_empty_checkpoint_is_always_a_way_on() -> None:
    for checkpoint, entry, _ in HISTORIES:
        if compare(checkpoint, entry, written=WRITTEN).decision is Decision.HALT:
            found = compare(CheckpointFacts(None), entry, Remedy.NEW_GENERATION, WRITTEN)
            assert found.decision is Decision.NEW_GENERATION

"""What must never happen, and the little that has to be remembered to notice it.

A check returns a sentence about the violation, or None.
"""

from __future__ import annotations

from typing import NamedTuple

from onceflow.protocol.ledger import NOTHING_COMMITTED, OwnerEntry
from tests.support.explorer.kafka import Write
from tests.support.explorer.spark import Checkpoint, Plan

PARTS = frozenset({"records", "head", "offsets"})


class Truth(NamedTuple):
    """What the coordinators have decided so far, whoever can read it already.

    Args:
        plans: what each committed batch was made from.
        newest_reader: highest token of a run that has read `head`.
    """

    plans: tuple[Plan, ...] = ()
    newest_reader: int = 0

    @property
    def committed(self) -> int:
        """Newest batch that is decided."""
        return len(self.plans) - 1

    def end(self, batch: int) -> int:
        """Where the input of a committed batch ended."""
        return self.plans[batch].end if batch >= 0 else 0


def on_commit(write: Write, truth: Truth) -> tuple[str | None, Truth]:
    """A coordinator decides to commit a lane transaction: the violation, and the new truth."""
    entry, who = write.head.entry, f"R{write.run}"
    batch = entry.batch.batch_id
    missing = ", ".join(sorted(PARTS - write.parts))
    if missing:
        return f"INCOMPLETE: batch {batch} is committed by {who} without {missing}", truth
    if entry.token < truth.newest_reader:
        late = f"token {entry.token}, after token {truth.newest_reader} has read head"
        return f"ZOMBIE COMMIT: {who} commits batch {batch} with {late}", truth
    if batch == NOTHING_COMMITTED:
        lost = f"RESET: {who} registers over batch {truth.committed}"
        return (lost if truth.plans else None), truth
    assert write.rows_from is not None
    plan = Plan(write.rows_from[1], write.head.clock)
    return _wrong_batch(write, truth), truth._replace(plans=(*truth.plans, plan))


def _wrong_batch(write: Write, truth: Truth) -> str | None:
    batch, who = write.head.batch, f"R{write.run}"
    if batch <= truth.committed:
        return f"DUPLICATE: batch {batch} is committed again, by {who}"
    if batch > truth.committed + 1:
        return f"HOLE: batch {batch} is committed by {who} before batch {truth.committed + 1}"
    if write.is_early:
        return f"DISORDER: records of batch {batch} were appended before batch {batch - 1}'s end"
    if write.rows_from != write.head.input:
        return f"FALSE LEDGER: head of batch {batch} claims other input than its rows hold"
    start, end = write.rows_from or (0, 0)
    if start != truth.end(batch - 1):
        what = "LOST" if start > truth.end(batch - 1) else "TWICE"
        return (
            f"INPUT {what}: batch {batch} by {who} covers [{start},{end}), but the batch before it"
            f" ended at {truth.end(batch - 1)}"
        )
    if dict(write.head.entry.sink.sequence) != {0: (batch + 1, batch + 1)}:
        return f"SEQUENCE: batch {batch} is numbered {dict(write.head.entry.sink.sequence)}"
    return None


def on_spark_commit(run: int, batch: int, end: int, truth: Truth) -> str | None:
    """A run writes `commits/<batch>`, with its state made from the input up to `end`."""
    if batch > truth.committed:
        return f"SPARK AHEAD: R{run} logs batch {batch} as done, Kafka has not committed it"
    if end != truth.end(batch):
        return (
            f"STATE DIVERGES: R{run} completes batch {batch} with input up to {end}, its output"
            f" was made from input up to {truth.end(batch)}"
        )
    return None


def on_halt(run: int, owner: OwnerEntry | None, checkpoint: Checkpoint, truth: Truth) -> str | None:
    """A run reports corruption: only the owner may, and it must be true of what is durable."""
    if owner is None or owner.run_id != f"R{run}":
        return f"FALSE HALT: R{run} reports corruption, but is merely fenced"
    is_ahead = checkpoint.done > truth.committed or truth.committed > checkpoint.planned
    is_overwritten = any(
        (planned.end, planned.clock) != (committed.end, committed.clock)
        for planned, committed in zip(checkpoint.plans, truth.plans, strict=False)
    )
    if is_ahead or is_overwritten:
        return None
    return f"FALSE HALT: R{run} reports corruption, but checkpoint and ledger agree"

"""Checks for what must never happen, and the little that they have to remember.

A check returns a sentence about the violation, or None.
"""

from __future__ import annotations

from typing import NamedTuple

from onceflow.protocol.delivery import Delivery
from onceflow.protocol.ledger import NOTHING_COMMITTED, OwnerEntry
from tests.support.explorer.kafka import Write
from tests.support.explorer.product import Head
from tests.support.explorer.spark import Checkpoint, Plan

PARTS = frozenset({"records", "head", "offsets"})


class Append(NamedTuple):
    """A record that was written outside a transaction: the only one of its batch."""

    run: int
    head: Head

    @property
    def plan(self) -> tuple[object, ...]:
        """The batch, input and clock that the record was made from, as in its plan tag."""
        return self.head.batch, self.head.input, self.head.clock


class Truth(NamedTuple):
    """All that the coordinators have decided so far, even if no reader can see it yet.

    Args:
        plans: what each committed batch was made from.
        newest_reader: highest token of a run that has read `head`.
        appends: what was written outside transactions, each different one once.
        writers: at most once, who committed each batch.
        kept: records of the output that readers have, of batches before the first; -1 if that of
            batch 0 is in another output.
    """

    plans: tuple[Plan, ...] = ()
    newest_reader: int = 0
    appends: frozenset[Append] = frozenset()
    writers: tuple[int, ...] = ()
    kept: int = 0

    def appended(self, append: Append) -> Truth:
        """The same with one more record."""
        return self._replace(appends=self.appends | {append})

    def is_appended(self, batch: int) -> bool:
        """Whether a record of this batch is there."""
        return any(append.head.batch == batch for append in self.appends)

    @property
    def committed(self) -> int:
        """Newest batch that is decided."""
        return len(self.plans) - 1

    def end(self, batch: int) -> int:
        """Where the input of a committed batch ended."""
        return self.plans[batch].end if batch >= 0 else 0

    def sequence(self, batch: int) -> tuple[int, int]:
        """First and last sequence of a batch, which has one record."""
        return self.kept + batch + 1, self.kept + batch + 1


def on_commit(
    write: Write, truth: Truth, delivery: Delivery = Delivery.EXACTLY_ONCE
) -> tuple[str | None, Truth]:
    """A coordinator decides to commit a lane transaction: the violation, and the new truth."""
    entry, who = write.head.entry, f"R{write.run}"
    batch = entry.batch.batch_id
    is_whole = delivery is Delivery.EXACTLY_ONCE or batch == NOTHING_COMMITTED
    missing = ", ".join(sorted(PARTS - write.parts - (frozenset() if is_whole else {"records"})))
    if missing:
        return f"INCOMPLETE: batch {batch} is committed by {who} without {missing}", truth
    if write.strays:
        return f"STRAY: batch {batch} is committed with a record of a task without report", truth
    if entry.token < truth.newest_reader:
        late = f"token {entry.token}, after token {truth.newest_reader} has read head"
        return f"ZOMBIE COMMIT: {who} commits batch {batch} with {late}", truth
    if batch == NOTHING_COMMITTED:
        lost = f"RESET: {who} registers over batch {truth.committed}"
        return (lost if truth.plans else None), truth
    if write.rows_from is None:
        return _wrong_rebuild(write, truth), truth
    plan = Plan(write.rows_from[1], write.head.clock)
    violation = _wrong_batch(write, truth) or _wrong_for(delivery, write, truth)
    decided = truth._replace(plans=(*truth.plans, plan))
    if delivery is Delivery.AT_MOST_ONCE:
        decided = decided._replace(writers=(*truth.writers, write.run))
    return violation, decided


def _wrong_rebuild(write: Write, truth: Truth) -> str | None:
    """A `head` without a batch of its own tells what is committed already, by an origin too."""
    head, batch = write.head, write.head.batch
    told = (batch, head.input, head.entry.sink.sequence.get(0, (1, 0)))
    start, (first, last) = truth.end(batch - 1), truth.sequence(batch)
    true = (truth.committed, (start, truth.end(batch)), (first, last))
    # A position without the batch's own records has their last number, too.
    if told in {true, (*true[:2], (last + 1, last))}:
        return None
    return f"FALSE LEDGER: R{write.run} rebuilds {told}, not {true}"


def _wrong_for(delivery: Delivery, write: Write, truth: Truth) -> str | None:
    """The violation of the mode by the records at the moment at which `head` is decided, if any."""
    batch, entry = write.head.batch, write.head.entry
    if delivery is Delivery.AT_LEAST_ONCE:
        is_there = any(a.plan == Append(write.run, write.head).plan for a in truth.appends)
        return None if is_there else f"LOST: head of batch {batch} is committed without its record"
    if delivery is Delivery.AT_MOST_ONCE:
        first, last = entry.at_risk.get(0, (1, 0))
        if not first <= batch + 1 <= last:
            return f"UNNAMED: head of batch {batch} does not name its own record"
        is_named = first <= batch <= last
        if batch and not truth.is_appended(batch - 1) and not is_named:
            return f"UNNAMED: batch {batch - 1} is not written, and head of batch {batch} is silent"
    return None


def on_append(
    append: Append, truth: Truth, delivery: Delivery, *, may_differ: bool
) -> tuple[str | None, Truth]:
    """A record is written outside a transaction: the violation, and the new truth.

    Args:
        may_differ: whether a driver may have overwritten the plan of another one.
    """
    batch, after = append.head.batch, truth.appended(append)
    who = f"R{append.run}"
    if violation := _wrong_sequence(append.head, truth):
        return violation, after
    if truth.committed < batch - 1:
        return f"DISORDER: {who} writes batch {batch} before batch {batch - 1} is decided", after
    others = [a for a in truth.appends if a.head.batch == batch]
    if delivery is Delivery.AT_MOST_ONCE:
        if truth.committed < batch or truth.writers[_index(truth, batch)] != append.run:
            return f"EARLY: {who} writes batch {batch}, of which it has not committed head", after
        return (f"TWICE: {who} writes batch {batch} again" if others else None), after
    is_own = any(a.run == append.run and a.plan != append.plan for a in others)
    is_any = any(a.plan != append.plan for a in others)
    if is_own or (is_any and not may_differ):
        return f"DIVERGES: {who} writes batch {batch} again from other input", after
    return None, after


def _index(truth: Truth, batch: int) -> int:
    """Batches that were there before the first run have no writer."""
    return batch - (len(truth.plans) - len(truth.writers))


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
    return _wrong_sequence(write.head, truth)


def _wrong_sequence(head: Head, truth: Truth) -> str | None:
    found = head.entry.sink.sequence.get(0, (0, 0))
    if found == truth.sequence(head.batch):
        return None
    if found[0] <= truth.kept:
        return f"REPEATED NUMBER: readers would discard batch {head.batch}, numbered {found}"
    return f"SEQUENCE: batch {head.batch} is numbered {found}"


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
    # A zombie may have logged its last batch since, so that the log is whole again.
    if is_ahead or is_overwritten or checkpoint.has_lost:
        return None
    return f"FALSE HALT: R{run} reports corruption, but checkpoint and ledger agree"

"""A model of the checkpoint that Spark's runs share: offset log and commit log."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import NOTHING_COMMITTED
from tests.support.explorer.product import QUERY, batch_plan


class LogWrites(Enum):
    """How Spark creates `offsets/N` and `commits/N`."""

    EXCLUSIVE = auto()
    """Atomically: the second writer fails."""
    CHECK_THEN_RENAME = auto()
    """As on a `file:` checkpoint: a writer that looked before the first was done overwrites it."""


class Plan(NamedTuple):
    """One entry of the offset log.

    Args:
        end: of what the batch reads.
        clock: the batch's pinned clock. Every run reads another one.
        start: of what the batch reads, if the entry tells it (a repaired one does); None: where the
            entry before it ends.
    """

    end: int
    clock: int
    start: int | None = None


class Checkpoint(NamedTuple):
    """Content of the disk.

    Args:
        plans: `offsets/N` for N from 0.
        done: newest N of `commits/N`.
    """

    plans: tuple[Plan, ...] = ()
    done: int = NOTHING_COMMITTED
    has_lost: bool = False

    @property
    def planned(self) -> int:
        """Newest N of `offsets/N`."""
        return len(self.plans) - 1

    def start(self, batch: int) -> int:
        """Where a batch begins, as the offset log tells it."""
        told = self.plans[batch].start if batch <= self.planned else None
        if told is not None:
            return told
        return self.plans[batch - 1].end if batch else 0

    def planned_as(self, batch: int, plan: Plan) -> Checkpoint:
        """`offsets/<batch>` is written, or overwritten."""
        return self._replace(plans=(*self.plans[:batch], plan, *self.plans[batch + 1 :]))

    def repaired(self, batch: int, plan: Plan) -> Checkpoint:
        """`offsets/<batch>` is written; it ends the log unless its batch is done."""
        if self.done >= batch:
            return self.planned_as(batch, plan)
        return self._replace(plans=(*self.plans[:batch], plan))

    def commit_lost(self) -> Checkpoint:
        """The newest entry of the commit log is gone."""
        return self._replace(done=self.done - 1, has_lost=True)

    def logged(self, batch: int) -> Checkpoint:
        """`commits/<batch>` is written, or overwritten."""
        return self._replace(done=max(self.done, batch))

    def next_batch(self) -> int:
        """The batch that a query runs first if it starts now; it may be planned already."""
        return self.planned if self.planned > self.done else self.done + 1

    def facts(self) -> CheckpointFacts:
        """Facts that are compared with the ledger."""
        plans = {
            n: batch_plan(self.start(n), self.plans[n].end, self.plans[n].clock)
            for n in {self.planned, self.done} - {NOTHING_COMMITTED}
        }
        return CheckpointFacts(QUERY, self.planned, self.done, plans)

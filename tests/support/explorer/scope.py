"""How large a search is, and which faults it tries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from onceflow.protocol.delivery import Delivery
from tests.support.explorer.spark import LogWrites


class Fault(Enum):
    """Faults that may happen at any time. A crash is always possible: no run has to go on."""

    LANE_TIMEOUT = auto()
    """The coordinator aborts a lane's transaction by itself."""
    OWNER_TIMEOUT = auto()
    """The same for a claim."""
    LOST_ANSWER = auto()
    """To a claim, an initialisation, a commit, or a read of `owner` after an initialisation."""
    REPEATED_END_TXN = auto()
    """The client library sends EndTxn again while the first copy is still under way."""
    REFUSED = auto()
    """A send or a commit fails; it may be tried again."""
    REFUSED_FOR_GOOD = auto()
    """The same, but trying again cannot help: the run does less than after REFUSED, and ends."""
    UNNOTICED_FENCE = auto()
    """A send of a fenced incarnation seems to work: the client has not heard of it yet."""
    LATE_INIT = auto()
    """An initialisation takes effect after its sender gave up on it and tried again."""


ALL_FAULTS = frozenset(Fault)


KEPT = 5
"""Records in the output of batches before the first, where a ledger was lost."""


class PlanReads(Enum):
    """Where the runtime takes the source ranges of the batch from that it proposes."""

    FROM_SPARK = auto()
    """What the running batch really reads."""
    FROM_CHECKPOINT = auto()
    """What `offsets/N` says when the batch runs; another run may have overwritten it."""


class Beginning(Enum):
    """State before the first run."""

    NOTHING = auto()
    """A checkpoint without batches and an empty ledger: the first run has to register."""
    AFTER_ONE_BATCH = auto()
    """Batch 0 is done everywhere, and its driver is gone."""
    LEDGER_SET_BACK = auto()
    """A backup of the ledger was restored, from before the first batch, and the checkpoint emptied;
    the output is further."""
    OUTPUT_ALONE = auto()
    """Ledger and checkpoint are lost; the output holds what was written under them."""
    TWO_GENERATIONS = auto()
    """The ledger is lost; the checkpoint is that of the second generation, of which batch 0 is
    done. One partition of the output holds it, another a later batch of the first generation."""
    FORK = auto()
    """Of a checkpoint that was forked after batch 0, which its origin has done. It has no ledger
    yet, and no output."""
    MOVED = auto()
    """Batch 0 is done everywhere, on the checkpoint of another query; its state was copied to this
    one."""


@dataclass(frozen=True)
class Scope:
    """One search.

    Args:
        runs: drivers that may all be alive at once; run i + 1 begins after run i.
        lanes: of every run; or one number for each run.
        batches: to be written; after them the work is done.
        plan_variants: how many different ends a newly planned batch may have.
        has_writers: whether tasks of Spark write the records, into the driver's transaction.
        loses_commits: whether the disk of the checkpoint loses the newest entry of the commit log,
            once, and keeps the plan that follows it.
    """

    runs: int = 2
    lanes: int | tuple[int, ...] = 2
    batches: int = 2
    plan_variants: int = 1
    log_writes: LogWrites = LogWrites.EXCLUSIVE
    plan_reads: PlanReads = PlanReads.FROM_SPARK
    faults: frozenset[Fault] = ALL_FAULTS
    begins: Beginning = Beginning.AFTER_ONE_BATCH
    delivery: Delivery = Delivery.EXACTLY_ONCE
    loses_commits: bool = False
    has_writers: bool = False

    def lanes_of(self, run: int) -> int:
        """Lanes of one run; a run that comes later has as many as run 0."""
        if isinstance(self.lanes, int):
            return self.lanes
        return self.lanes[run] if run < len(self.lanes) else self.lanes[0]

    @property
    def last_batch(self) -> int:
        """Id of the last batch to be written."""
        nothing_done = {
            Beginning.NOTHING,
            Beginning.LEDGER_SET_BACK,
            Beginning.OUTPUT_ALONE,
        }
        return self.batches - (self.begins in nothing_done)

    @property
    def all_lanes(self) -> int:
        """Lanes that exist."""
        return max(self.lanes_of(run) for run in range(self.runs + 1))

    @property
    def is_symmetric(self) -> bool:
        """Whether lanes 0 and 1 can be swapped: no run prefers one of them."""
        return self.all_lanes == 2 and all(self.lanes_of(run) == 2 for run in range(self.runs))

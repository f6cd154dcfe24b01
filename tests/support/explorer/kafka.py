"""A model of Kafka's transactions, as the protocol leans on them.

Modelled: a coordinator decides (PREPARE_*) before its markers are written (COMPLETE_*, EMPTY), and
acknowledges in between; EndTxn acts on the current (producer id, epoch) whatever transaction is
open by then; `init_transactions` aborts an open transaction and waits until older ones are marked;
a time-out aborts and raises the epoch; read_committed stops at the last stable offset.
Not modelled: loss of acknowledged data, and more than one broker.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, NamedTuple

from onceflow.protocol.lane import LanePhase
from onceflow.protocol.ledger import OwnerEntry
from tests.support.explorer.product import Head

NOBODY = -1
FOREGROUND = -1
"""In place of a lane: the reader is the run itself, not the renewal of one of its lanes."""
MAX_END_TXN = 2
"""Copies of one EndTxn under way at once."""


class Status(Enum):
    """State of a transactional id, as its coordinator knows it."""

    EMPTY = auto()
    """No transaction; also after an abort."""
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    """Decided and, from now on, acknowledged; markers are still to be written."""
    PREPARE_ABORT = auto()
    COMPLETE_COMMIT = auto()


_UNDECIDED = frozenset({Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
_UNMARKED = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
_ACKNOWLEDGED = frozenset({Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT})


class Task(NamedTuple):
    """An attempt of a Spark task that writes the record of a batch into the driver's transaction.

    Args:
        write: what a transaction would hold that it opens by itself.
        has_written: every one of its records is acknowledged; its report is on the way.
        is_given_up: the driver takes it for failed; if it lives, it writes all the same.
    """

    write: Write
    has_written: bool = False
    is_given_up: bool = False


class TransactionalId(NamedTuple):
    """The coordinator's side of one id.

    Args:
        holder: run whose incarnation has the current epoch.
        content: what an open or just committed transaction holds.
        commits: EndTxn(commit) of the current epoch that are still in the network.
        aborts: the same for EndTxn(abort).
        has_late_init: an InitProducerId whose sender gave up on it is still in the network.
        tasks: writers that have joined the current epoch, and may outlive its holder.
    """

    status: Status = Status.EMPTY
    holder: int = NOBODY
    content: Any = None
    commits: int = 0
    aborts: int = 0
    has_late_init: bool = False
    tasks: tuple[Task, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Whether a read to the high watermark has to wait for this transaction."""
        return self.status in _UNDECIDED

    @property
    def is_unmarked(self) -> bool:
        """Whether markers are still to be written."""
        return self.status in _UNMARKED

    @property
    def is_acknowledged(self) -> bool:
        """Whether the coordinator answers "committed"."""
        return self.status in _ACKNOWLEDGED

    def settled(self) -> TransactionalId:
        """The same, without what can have no effect any more, so that equal worlds are equal."""
        changed = self
        if self.holder == NOBODY and self.status is Status.COMPLETE_COMMIT:
            changed = changed._replace(status=Status.EMPTY)
        if self.holder == NOBODY and self.status is not Status.ONGOING and not self.tasks:
            # Only the holder of the current epoch, or a writer, could open another one in it.
            changed = changed._replace(commits=0, aborts=0)
        return changed

    def bumped(self) -> TransactionalId:
        """A new epoch: holder and writers are fenced, what they have in the network is stale."""
        return self._replace(holder=NOBODY, commits=0, aborts=0, tasks=())

    def initialised_by(self, run: int) -> Initialised | None:
        """InitProducerId: what comes of it; None while it must wait for markers."""
        if self.status is Status.ONGOING:
            return Initialised(self.timed_out(), is_done=False)
        if self.is_unmarked:
            return None
        empty = TransactionalId(holder=run, has_late_init=self.has_late_init)
        return Initialised(empty, is_done=True)

    def late_init_arrives(self) -> TransactionalId:
        """InitProducerId reaches the coordinator; the answer is lost."""
        result = self.initialised_by(NOBODY)
        return (result.id if result else self)._replace(has_late_init=False)

    def timed_out(self) -> TransactionalId:
        """The coordinator aborts an open transaction and raises the epoch."""
        return self.bumped()._replace(status=Status.PREPARE_ABORT, content=None)

    def commit_sent(self) -> TransactionalId:
        """The holder hands EndTxn(commit) to the network."""
        return self._replace(commits=min(self.commits + 1, MAX_END_TXN))

    def opened(self, content: object) -> TransactionalId:
        """Something was written in a transaction."""
        return self._replace(status=Status.ONGOING, content=content)

    def commit_arrives(self) -> TransactionalId:
        """EndTxn(commit) reaches the coordinator."""
        is_open = self.status is Status.ONGOING
        return self._replace(
            commits=self.commits - 1,
            status=Status.PREPARE_COMMIT if is_open else self.status,
        ).settled()

    def abort_arrives(self) -> TransactionalId:
        """EndTxn(abort) reaches the coordinator."""
        changed = self._replace(aborts=self.aborts - 1)
        if self.status is Status.ONGOING:
            changed = changed._replace(status=Status.PREPARE_ABORT, content=None)
        return changed.settled()

    def marked(self) -> TransactionalId:
        """The markers of a decided transaction are written."""
        is_commit = self.status is Status.PREPARE_COMMIT
        status = Status.COMPLETE_COMMIT if is_commit else Status.EMPTY
        return self._replace(status=status, content=None).settled()

    def dropped_by(self, run: int) -> TransactionalId:
        """The run discards its incarnation, if it has the current one."""
        return self._replace(holder=NOBODY).settled() if self.holder == run else self


class Initialised(NamedTuple):
    """Result of InitProducerId: answered, or first an open transaction has to be aborted."""

    id: TransactionalId
    is_done: bool


class Owner(NamedTuple):
    """The id that claims are written with, and ledger partition 0, which has no other writer.

    Args:
        id: its content is the claim of an undecided transaction.
        entry: newest committed `owner`.
        waiting: readers (run, lane or FOREGROUND) that began while a claim was undecided.
    """

    id: TransactionalId = TransactionalId()
    entry: OwnerEntry | None = None
    waiting: frozenset[tuple[int, int]] = frozenset()

    def __str__(self) -> str:
        return f"{self.entry.run_id}, token {self.entry.token}" if self.entry else "no one"

    def read_begun(self, run: int, lane: int) -> Owner:
        """A read to the high watermark begins."""
        if not self.id.is_undecided:
            return self
        return self._replace(waiting=self.waiting | {(run, lane)})

    def read_ended(self, run: int, lane: int) -> Owner:
        """The reader gives up."""
        return self._replace(waiting=self.waiting - {(run, lane)})

    def can_read(self, run: int, lane: int) -> bool:
        """Whether everything below the high watermark that was taken is decided."""
        return (run, lane) not in self.waiting

    def marked(self) -> Owner:
        """The markers of a decided claim are written."""
        is_commit = self.id.status is Status.PREPARE_COMMIT
        return Owner(self.id.marked(), self.id.content if is_commit else self.entry)

    def without(self, run: int) -> Owner:
        """Nothing of this run is left but its messages."""
        return self._replace(
            id=self.id.dropped_by(run),
            waiting=frozenset(w for w in self.waiting if w[0] != run),
        )


class HeadLog(NamedTuple):
    """Ledger partition 1, written by every lane.

    Args:
        entry: newest committed `head` below the last stable offset; None if there is none.
        tail: (lane, head, is_committed) from the first undecided entry on.
        waiting: (run, lane): the run reads to a high watermark below which an entry of that lane
            was undecided.
    """

    entry: Head | None = None
    tail: tuple[tuple[int, Head, bool], ...] = ()
    waiting: frozenset[tuple[int, int]] = frozenset()

    def appended(self, lane: int, head: Head) -> HeadLog:
        """A lane writes `head` in its open transaction."""
        return self._replace(tail=(*self.tail, (lane, head, False)))

    def read_begun(self, run: int) -> HeadLog:
        """A read to the high watermark begins."""
        undecided = {(run, lane) for lane, _, is_committed in self.tail if not is_committed}
        return self._replace(waiting=self.waiting | undecided)

    def can_read(self, run: int) -> bool:
        """Whether everything below the high watermark that was taken is decided."""
        return all(reader != run for reader, _ in self.waiting)

    def marked(self, lane: int, is_commit: bool) -> HeadLog:
        """The markers of this lane's transaction reach the partition."""
        tail = [
            (at, head, is_committed or is_commit) if at == lane else (at, head, is_committed)
            for at, head, is_committed in self.tail
            if at != lane or is_committed or is_commit
        ]
        entry = self.entry
        while tail and tail[0][2]:
            entry = tail.pop(0)[1]
        return HeadLog(entry, tuple(tail), frozenset(w for w in self.waiting if w[1] != lane))

    def without(self, run: int) -> HeadLog:
        """The run reads no more."""
        return self._replace(waiting=frozenset(w for w in self.waiting if w[0] != run))


class Write(NamedTuple):
    """Content of an open lane transaction.

    Args:
        run: who wrote it.
        head: the entry that it will make, once SEND_HEAD has been executed.
        parts: which of the three sends reached the broker, or were reported by every task.
        rows_from: the input that the rows were really computed from; None without rows.
        is_early: its records were appended while the batch before was not decided.
        strays: records of tasks that have not reported.
    """

    run: int
    head: Head
    parts: frozenset[str]
    rows_from: tuple[int, int] | None
    is_early: bool
    strays: int = 0


class Handle(NamedTuple):
    """One run's view of a lane.

    Args:
        phase: of the product's lane machine; None while the run has nothing to do with the lane.
        is_held: the lane belongs to the running proposal (busy, or being resettled).
    """

    phase: LanePhase | None = None
    is_held: bool = False


class Lane(NamedTuple):
    """One lane's transactional id and what each run believes of it."""

    id: TransactionalId
    handles: tuple[Handle, ...]

    def handled(self, run: int, handle: Handle) -> Lane:
        """The same with another handle of one run."""
        handles = (*self.handles[:run], handle, *self.handles[run + 1 :])
        return self._replace(handles=handles)

    def without(self, run: int) -> Lane:
        """Nothing of this run is left but its messages."""
        return self.handled(run, Handle())._replace(id=self.id.dropped_by(run))

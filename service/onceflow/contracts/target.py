"""Contracts of targets: other systems that a delivery carries the records of topics to.

A `Target` takes records and position in one step, and so keeps the position itself. Then a record
has its effect once, whatever crashes: after every failure, the position in the target is the truth.
A `Sender` reaches a receiver that keeps no position; the delivery keeps it, after the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from onceflow.contracts.connector import Place
from onceflow.contracts.record import Record
from onceflow.errors import AbortableError, InvariantError, OutcomeUnknownError, RetriableError

if TYPE_CHECKING:
    import pyarrow as pa

Values: TypeAlias = tuple[Any, ...]
"""Values of one row, in the order of the delivery's columns, as `onceflow.columns` describes them;
those with parts (arrays, structs, maps) are JSON text."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Position of a delivery in one partition.

    Args:
        offset: next offset to read.
        state: of the filter that discards repeats, in ASCII.
    """

    offset: int
    state: str


@dataclass(frozen=True, slots=True)
class Intent:
    """Records that are being sent to a receiver: all of a partition from its position on.

    Args:
        until: the offset after the last of these records.
        since_ms: unix milliseconds, from before the first try.
    """

    until: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one instance to write what it reads from a partition.

    Args:
        claim_epoch: rises with each claim of the partition; only the newest may write.
        mark: the position in the target; None if nothing of the partition was ever written.
        intent: what an earlier instance began to send and perhaps sent. The next batch of the
            partition must hold everything before its end.
    """

    place: Place
    claim_epoch: int
    mark: Mark | None
    intent: Intent | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The position of a claimed partition before and after a batch.

    Args:
        via: the position at the end of the claim's intent; None if there is no intent, or if the
            topic no longer has the record before its end. Only for senders.
    """

    claim: Claim
    to: Mark
    via: Mark | None = None


@dataclass(frozen=True)
class Batch:
    """Records in the order in which they were read, and the positions that they lead to.

    Args:
        rows: of each record, for a target that takes rows; else empty.
        deleted: indices of rows that delete what has their key; only key columns have values.
        table: the rows, for a target that takes tables; else None, or where there are none. Its
            columns are those of `onceflow.columns.tables.table_schema`.
    """

    records: Sequence[Record]
    rows: Sequence[Values]
    moves: Sequence[Move]
    deleted: frozenset[int] = field(default_factory=frozenset)
    table: pa.Table | None = None


class Target(Protocol):
    """One connection of one delivery. Not for several threads at once.

    A delivery makes all calls from one thread, `close` included, and may call `close` again from
    another one.

    After a RetriableError, a DeadlineError or an OutcomeUnknownError the same call may be made
    again; the target connects again by itself. Every method may raise these, and ConfigError for
    what no retry can change. Messages hold no secret.
    """

    def check(self) -> None:
        """Look whether the target exists and fits, and create what only the delivery needs.

        Raises:
            ConfigError: lists all faults: a missing table or column, another type, no rights.
        """

    def probe(self) -> None:
        """Ask whether the target is well, by a request that carries no record."""

    def claim(self, place: Place) -> Claim:
        """Become the one that writes what is read from this partition, and read its position.

        From then on, a `write` under an older claim changes nothing.
        """

    def positions(self) -> Mapping[Place, Mark]:
        """The position of every partition of which something was written."""

    def write(self, batch: Batch) -> None:
        """Write records and positions.

        What comes from one partition is written in one step with the partition's position, as a
        whole or not at all. A target may write several partitions in several steps. What is in the
        target already is recognised by its position and not written again: after an answer that
        was lost, write the same batch again.

        Raises:
            AbortableError: another instance has claimed one of the partitions; nothing of it was
                written.
            RecordError: the target will never take one of the records; nothing of its partition
                was written.
        """

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Find the records that the target will never take: index and reason. Writes nothing."""

    def close(self) -> None:
        """Free the connection. Safe to call twice and at any point."""


@dataclass(frozen=True)
class Answers:
    """The outcome of sending each of some records.

    Args:
        acknowledged: indices of the records that the receiver has.
        refused: index and reason of those that it will never take.
        failure: why all others are to be sent again; None if there are none.
    """

    acknowledged: frozenset[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    failure: RetriableError | OutcomeUnknownError | None = None


class Sender(Protocol):
    """One connection of one delivery to a receiver that keeps no position.

    Not for several threads at once. Messages hold no secret.
    """

    def check(self) -> None:
        """Look whether the receiver can be reached and knows us.

        Raises:
            ConfigError: for what no retry can change.
            RetriableError: there is no answer, or not now.
        """

    def probe(self) -> None:
        """Ask whether the receiver is well, by a request that carries no record. As `check`."""

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        """Send records and wait for the answers to all of them, each within a time limit.

        Args:
            records: in order. Those whose answer was lost come again, with none between them.
            attempt: counts from 1 for each batch.

        Raises:
            ConfigError: for what no retry can change, such as wrong credentials. If some records
                were acknowledged first, only the next call raises it.
            CorruptionError: the receiver has had other content under the key of a record. Likewise.
        """

    def close(self) -> None:
        """Free the connection. Safe to call twice and at any point."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim as the target has it now; `offset` is None as long as nothing was written."""

    claim_epoch: int
    offset: int | None


def is_unwritten(moves: Sequence[Move], held: Mapping[Place, Held]) -> bool:
    """Decide whether a batch is still to be written, from what the target has, under a lock.

    Returns:
        False if the target has the batch already: its answer was lost.

    Raises:
        AbortableError: a partition was claimed by another instance since.
    """
    found = set()
    for move in moves:
        place, now = move.claim.place, held.get(move.claim.place)
        where = f"{place[0]}[{place[1]}]"
        if now is None or now.claim_epoch != move.claim.claim_epoch:
            raise AbortableError(
                "another instance has claimed this partition",
                subject=where,
                expected=f"claim {move.claim.claim_epoch}",
                found=f"claim {now.claim_epoch}" if now else "no claim",
                then="nothing was written; this instance reads the position again",
            )
        before = move.claim.mark.offset if move.claim.mark else None
        if now.offset not in {before, move.to.offset}:
            raise InvariantError(
                "the position in the target is neither before nor after the batch",
                subject=where,
                expected=f"offset {before} or {move.to.offset}",
                found=f"offset {now.offset}",
                then="nothing was written",
            )
        if before != move.to.offset:
            found.add(now.offset == before)
    if len(found) > 1:
        then = "nothing was written"
        raise InvariantError("the target has a part of a batch", then=then)
    return found != {False}

"""Contract of a target: another system that a delivery carries the records of topics to.

A target that takes rows and position in one step keeps the position itself. Then a record has its
effect once, whatever crashes: after every failure, the position in the target is the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from onceflow.contracts.connector import Place
from onceflow.errors import AbortableError, InvariantError

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
class Claim:
    """The right of one instance to write what it reads from a partition.

    Args:
        claim_epoch: rises with each claim of the partition; only the newest may write.
        mark: the position in the target; None if nothing of the partition was ever written.
    """

    place: Place
    claim_epoch: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Move:
    """The position of a claimed partition before and after a batch."""

    claim: Claim
    to: Mark


@dataclass(frozen=True)
class Batch:
    """Rows in the order in which they were read, and the positions that they lead to.

    Args:
        deleted: indices of rows that delete what has their key; only key columns have values.
    """

    rows: Sequence[Values]
    moves: Sequence[Move]
    deleted: frozenset[int] = field(default_factory=frozenset)


class Target(Protocol):
    """One connection of one delivery. Not for several threads at once.

    After a RetriableError or an OutcomeUnknownError the same call may be made again; the target
    connects again by itself. Every method may raise these two, and ConfigError for what no retry
    can change. Messages hold no secret.
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
        """Write rows and positions in one step that happens as a whole or not at all.

        A batch that is in the target already is recognised by its positions and not written
        again: after an answer that was lost, write the same batch again.

        Raises:
            AbortableError: another instance has claimed one of the partitions; nothing was written.
            RecordError: the target will never take one of the rows; nothing was written.
        """

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Find the rows that the target will never take: index and reason. Writes nothing."""

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

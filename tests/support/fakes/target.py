"""A target in memory, for deliveries: keeps the contract, and fails where a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onceflow.contracts.connector import Place
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Claim, Held, Mark, Values, is_unwritten
from onceflow.errors import OnceflowError, RecordError


@dataclass
class Store:
    """Rows and positions, shared by the instances of a delivery."""

    records: list[Record] = field(default_factory=list)
    rows: list[Values] = field(default_factory=list)
    held: dict[Place, tuple[int, Mark | None]] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    """Rows of each batch that was written."""

    def claim(self, place: Place) -> Claim:
        claim_epoch, mark = self.held.get(place, (0, None))
        self.held[place] = claim_epoch + 1, mark
        return Claim(place, claim_epoch + 1, mark)


@dataclass
class Failure:
    """One call that fails.

    Args:
        is_applied: whether it has its effect nevertheless: its answer was lost.
    """

    error: BaseException
    is_applied: bool = False


@dataclass
class MemoryTarget:
    """Implements `contracts.target.Target`.

    Args:
        writes: what happens to the next writes; then they succeed.
        probes: the same for probes.
        before_write: called before the next writes, one for each.
        poison: values that the target will never take, in any column.
    """

    store: Store
    writes: deque[Failure] = field(default_factory=deque)
    probes: deque[OnceflowError] = field(default_factory=deque)
    before_write: deque[Callable[[], object]] = field(default_factory=deque)
    poison: frozenset[object] = frozenset()
    probed: int = 0

    def check(self) -> None:
        """Everything fits."""

    def probe(self) -> None:
        self.probed += 1
        if self.probes:
            raise self.probes.popleft()

    def claim(self, place: Place) -> Claim:
        return self.store.claim(place)

    def positions(self) -> Mapping[Place, Mark]:
        return {place: mark for place, (_, mark) in self.store.held.items() if mark is not None}

    def write(self, batch: Batch) -> None:
        if self.before_write:
            self.before_write.popleft()()
        failure = self.writes.popleft() if self.writes else None
        if failure is None or failure.is_applied:
            self._apply(batch)
        if failure is not None:
            raise failure.error

    def refused(self, batch: Batch) -> Mapping[int, str]:
        found = enumerate(batch.rows)
        return {n: "poisoned" for n, row in found if not self.poison.isdisjoint(row)}

    def close(self) -> None:
        """Nothing is held."""

    def _apply(self, batch: Batch) -> None:
        held = {
            place: Held(claimed, mark.offset if mark else None)
            for place, (claimed, mark) in self.store.held.items()
        }
        if not is_unwritten(batch.moves, held):
            return
        if self.refused(batch):
            raise RecordError("poisoned")
        for n, row in enumerate(batch.rows):
            if n in batch.deleted:
                self.store.rows = [each for each in self.store.rows if each[0] != row[0]]
            else:
                self.store.rows.append(row)
        self.store.records += batch.records
        self.store.batches.append(len(batch.records))
        for move in batch.moves:
            self.store.held[move.claim.place] = move.claim.claim_epoch, move.to

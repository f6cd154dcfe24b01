"""A sender and positions in memory: keep their contracts, and fail where a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onceflow.clock import Deadline
from onceflow.contracts.connector import Place
from onceflow.contracts.record import Record
from onceflow.contracts.target import Answers, Claim, Held, Intent, Mark, Move, is_unwritten
from onceflow.errors import RetriableError

DOWN = RetriableError("the receiver does not answer")


@dataclass
class Scripted:
    """One call of `send`.

    Args:
        answered: how many of the records get an answer; None for all.
        lost: how many more the receiver gets, but their answers are lost.
        crash: raised in place of the answers.
    """

    answered: int | None = None
    lost: int = 0
    crash: BaseException | None = None


@dataclass
class MemorySender:
    """Implements `contracts.target.Sender`.

    Args:
        script: what happens to the next calls; then every record is answered.
        poison: offsets that the receiver will never take.
        before_send: called before the next calls, one for each.
    """

    script: deque[Scripted] = field(default_factory=deque)
    poison: frozenset[int] = frozenset()
    before_send: deque[Callable[[], object]] = field(default_factory=deque)
    calls: list[tuple[list[int], int]] = field(default_factory=list)
    """Offsets and attempt of each call."""
    received: list[tuple[int, int]] = field(default_factory=list)
    """Partition and offset of what the receiver has got, each as often as it came."""
    probed: int = 0

    def check(self) -> None:
        """All is well."""

    def probe(self) -> None:
        self.probed += 1

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        if self.before_send:
            self.before_send.popleft()()
        self.calls.append(([record.offset for record in records], attempt))
        step = self.script.popleft() if self.script else Scripted()
        answered = len(records) if step.answered is None else step.answered
        refused = {n: "poisoned" for n in range(answered) if records[n].offset in self.poison}
        got = [n for n in range(answered + step.lost) if n < len(records) and n not in refused]
        self.received += [(records[n].partition, records[n].offset) for n in got]
        if step.crash is not None:
            raise step.crash
        acknowledged = frozenset(n for n in got if n < answered)
        return Answers(acknowledged, refused, DOWN if answered < len(records) else None)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class Kept:
    """Value of one partition."""

    claim_epoch: int = 0
    mark: Mark | None = None
    intent: Intent | None = None


@dataclass
class MemoryPositions:
    """Implements `contracts.positions.Positions`; `kept` is shared by the instances."""

    kept: dict[Place, Kept] = field(default_factory=dict)

    def check(self, deadline: Deadline) -> None:
        """All is well."""

    def claim(self, place: Place, deadline: Deadline) -> Claim:
        found = self.kept.get(place, Kept())
        self.kept[place] = replace(found, claim_epoch=found.claim_epoch + 1)
        return Claim(place, found.claim_epoch + 1, found.mark, found.intent)

    def positions(self, deadline: Deadline) -> Mapping[Place, Mark]:
        return {place: kept.mark for place, kept in self.kept.items() if kept.mark}

    def intend(self, claim: Claim, intent: Intent, deadline: Deadline) -> None:
        found = self.kept.get(claim.place, Kept())
        is_unwritten([Move(claim, Mark(intent.until, ""))], {claim.place: _held(found)})
        self.kept[claim.place] = replace(found, intent=intent)

    def move(self, move: Move, deadline: Deadline) -> None:
        place = move.claim.place
        found = self.kept.get(place, Kept())
        if is_unwritten([move], {place: _held(found)}):
            self.kept[place] = replace(found, mark=move.to, intent=None)

    def close(self) -> None:
        """Nothing is held."""


def _held(kept: Kept) -> Held:
    return Held(kept.claim_epoch, kept.mark.offset if kept.mark else None)

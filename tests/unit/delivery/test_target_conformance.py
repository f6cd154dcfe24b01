"""A right target passes `onceflow.testing.targets`, and each wrong one fails what it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ConfigDict

from onceflow.contracts.connector import Place
from onceflow.contracts.record import Record
from onceflow.contracts.target import Answers, Batch, Claim, Mark, Move, Sender, Target
from onceflow.contracts.target_block import SenderBlock, TargetBlock, TargetSpec
from onceflow.errors import InvariantError, OnceflowError
from onceflow.testing.targets import (
    COLUMNS,
    RefusalPromises,
    SenderContract,
    TargetContract,
)
from onceflow.testing.targets.contract import DELIVERY
from tests.support.fakes.target import Failure, MemoryTarget, Store

POISON = 666


class MemoryBlock(TargetBlock):
    """Writes to the store of the test that runs."""

    kind: ClassVar[type[MemoryTarget]] = MemoryTarget
    stores: ClassVar[dict[str, Store]] = {}

    def target(self, spec: TargetSpec) -> Target:
        store = self.stores.setdefault(spec.delivery, Store())
        return self.kind(store, poison=frozenset({POISON}))


@dataclass
class Memory:
    """A store of `onceflow.testing.targets`, with a part for each delivery."""

    block: TargetBlock

    def spec(self, delivery: str) -> TargetSpec:
        return TargetSpec(delivery, COLUMNS, Path())

    def numbers(self) -> Sequence[int]:
        stores = type(self.block).stores.values()  # type: ignore[attr-defined]
        return [row[0] for store in stores for row in store.rows]

    def refused_number(self) -> int:
        return POISON


class TestMemory(TargetContract, RefusalPromises):
    @pytest.fixture
    def store(self) -> Memory:
        MemoryBlock.stores.clear()
        return Memory(MemoryBlock())


class Late(MemoryTarget):
    """Writes a batch when the next one comes."""

    def write(self, batch: Batch) -> None:
        if self.store.batches or self.before_write:
            super().write(batch)
        self.before_write.append(lambda: None)


class Repeating(MemoryTarget):
    def write(self, batch: Batch) -> None:
        super().write(batch)
        if len(self.store.rows) < 4:
            self.store.rows += batch.rows


class Standing(MemoryTarget):
    """Moves no position without rows."""

    def write(self, batch: Batch) -> None:
        if batch.rows:
            super().write(batch)


class Shortening(MemoryTarget):
    def write(self, batch: Batch) -> None:
        moves = [
            Move(each.claim, Mark(each.to.offset, each.to.state[:4000])) for each in batch.moves
        ]
        super().write(replace(batch, moves=moves))


class OfOnePlace(MemoryTarget):
    """Has one position for all partitions."""

    def write(self, batch: Batch) -> None:
        super().write(replace(batch, moves=batch.moves[:1]))


class Forgetful(MemoryTarget):
    """Begins again at each start."""

    def positions(self) -> Mapping[Place, Mark]:
        return {} if not self.probed else super().positions()

    def claim(self, place: Place) -> Claim:
        return replace(super().claim(place), mark=None)


class Unfenced(MemoryTarget):
    def write(self, batch: Batch) -> None:
        moves = [self._newest(move) for move in batch.moves]
        super().write(replace(batch, moves=moves))

    def _newest(self, move: Move) -> Move:
        claim_epoch, mark = self.store.held[move.claim.place]
        return Move(replace(move.claim, claim_epoch=claim_epoch, mark=mark), move.to)


class FencedByRows(Unfenced):
    """Notices another instance only by what it has written."""

    def write(self, batch: Batch) -> None:
        if any(mark for _, mark in self.store.held.values()):
            MemoryTarget.write(self, batch)
        else:
            super().write(batch)


class FencedAsAWhole(MemoryTarget):
    """A claim of any partition fences all."""

    def claim(self, place: Place) -> Claim:
        for other, (claim_epoch, mark) in [*self.store.held.items()]:
            self.store.held[other] = claim_epoch + 1, mark
        return super().claim(place)


class SharingPositions(MemoryTarget):
    def __init__(self, store: Store, poison: frozenset[object]) -> None:
        first = next(iter(MemoryBlock.stores.values()))
        super().__init__(first, poison=poison)


class ClosedOnce(MemoryTarget):
    def close(self) -> None:
        assert not self.writes
        self.writes.append(Failure(InvariantError("closed")))


class LaxBlock(MemoryBlock):
    model_config = ConfigDict(extra="allow")


class Swallowing(MemoryTarget):
    """Leaves out what it does not take, silently."""

    def write(self, batch: Batch) -> None:
        super().write(replace(batch, rows=[row for row in batch.rows if POISON not in row]))


class WritingToLook(MemoryTarget):
    def refused(self, batch: Batch) -> Mapping[int, str]:
        self.store.rows += batch.rows
        return super().refused(batch)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, "test_unknown_keys_are_refused"),
        (Late, "test_a_batch_is_there_when_write_returns_and_so_is_its_position"),
        (Forgetful, "test_a_batch_is_there_when_write_returns_and_so_is_its_position"),
        (Late, "test_batches_follow_one_another"),
        (Repeating, "test_a_batch_that_is_written_again_changes_nothing"),
        (Standing, "test_a_batch_without_rows_moves_the_position"),
        (Shortening, "test_the_state_of_the_filter_is_kept_as_it_is"),
        (OfOnePlace, "test_partitions_have_positions_of_their_own"),
        (SharingPositions, "test_deliveries_have_positions_of_their_own"),
        (Unfenced, "test_a_newer_claim_fences_an_older_one"),
        (FencedByRows, "test_an_older_claim_fences_even_if_nothing_was_written"),
        (FencedAsAWhole, "test_a_claim_of_one_partition_leaves_others_alone"),
        (ClosedOnce, "test_a_target_is_well_and_can_be_closed_at_any_point"),
        (Swallowing, "test_a_refused_row_is_named_and_nothing_of_its_batch_is_written"),
        (WritingToLook, "test_to_look_for_refused_rows_writes_nothing"),
    ],
)
def test_a_broken_promise_of_a_target_is_found(
    kind: type[MemoryTarget] | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemoryBlock.stores.clear()
    monkeypatch.setattr(MemoryBlock, "kind", kind or MemoryTarget)
    memory = Memory(MemoryBlock() if kind else LaxBlock())

    def opened(delivery: str = DELIVERY) -> Target:
        return memory.block.target(memory.spec(delivery))

    given = {"store": memory, "opened": opened}
    test = getattr(TestMemory, name)
    wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    with pytest.raises((AssertionError, OnceflowError, pytest.fail.Exception)):
        test(TestMemory(), *(given[each] for each in wanted))


def test_every_promise_of_a_target_is_broken_by_one_of_these() -> None:
    (marks,) = test_a_broken_promise_of_a_target_is_found.pytestmark  # type: ignore[attr-defined]
    assert {name for _, name in marks.args[1]} == {n for n in dir(TestMemory) if n[:5] == "test_"}


@dataclass
class MemorySender:
    """Implements `contracts.target.Sender`."""

    got: list[bytes]
    poison: set[bytes] = field(default_factory=set)

    def check(self) -> None:
        """It is well."""

    def probe(self) -> None:
        """It is well."""

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        refused = {n: "no" for n, one in enumerate(records) if one.value in self.poison}
        self.got += [one.value or b"" for n, one in enumerate(records) if n not in refused]
        return Answers(frozenset(range(len(records))) - refused.keys(), refused)

    def close(self) -> None:
        """Nothing is held."""


class MemorySenderBlock(SenderBlock):
    """Sends to the list of the test that runs."""

    kind: ClassVar[type[MemorySender]] = MemorySender
    got: ClassVar[list[bytes]] = []
    poison: ClassVar[set[bytes]] = set()

    def sender(self, spec: TargetSpec) -> Sender:
        return self.kind(self.got, self.poison)


class MemoryReceiver:
    """A receiver of `onceflow.testing.targets`."""

    def __init__(self) -> None:
        self.block = MemorySenderBlock()
        self.block.got.clear()
        self.block.poison.clear()

    def spec(self, delivery: str) -> TargetSpec:
        return TargetSpec(delivery, COLUMNS, Path())

    def values(self) -> Sequence[bytes]:
        return self.block.got

    def refuse(self, value: bytes) -> None:
        self.block.poison.add(value)


class TestMemorySender(SenderContract):
    @pytest.fixture
    def receiver(self) -> Iterator[MemoryReceiver]:
        return MemoryReceiver()  # type: ignore[return-value]


class Probing(MemorySender):
    def probe(self) -> None:
        self.got.append(b"ping")


class Losing(MemorySender):
    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        super().send(records[:5], attempt)
        return Answers(frozenset(range(len(records))))


class Reversing(MemorySender):
    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        return super().send(records[::-1], attempt)


class Posting(MemorySender):
    """Makes a request of no records."""

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        self.got += [] if records else [b""]
        return super().send(records, attempt)


class Sticking(MemorySender):
    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        answers = super().send(records, attempt)
        before = frozenset(range(min(answers.refused, default=len(records))))
        return Answers(before, answers.refused)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Probing, "test_a_look_carries_no_record"),
        (Losing, "test_every_record_is_acknowledged_and_there"),
        (Reversing, "test_records_of_one_key_come_in_order"),
        (Posting, "test_to_send_nothing_is_done_at_once"),
        (Sticking, "test_a_refused_record_is_named_and_holds_up_no_other"),
    ],
)
def test_a_broken_promise_of_a_sender_is_found(kind: type[MemorySender], name: str) -> None:
    receiver = MemoryReceiver()
    sender = kind(receiver.block.got, receiver.block.poison)
    with pytest.raises(AssertionError):
        getattr(TestMemorySender(), name)(receiver, sender)


def test_every_promise_of_a_sender_is_broken_by_one_of_these() -> None:
    (marks,) = test_a_broken_promise_of_a_sender_is_found.pytestmark  # type: ignore[attr-defined]
    names = {n for n in dir(TestMemorySender) if n[:5] == "test_"}
    assert {name for _, name in marks.args[1]} == names

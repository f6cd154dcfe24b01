"""The promises of a target, a test for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import pytest
from pydantic import ValidationError

from onceflow.columns import Columns, parse_columns
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Claim, Mark, Move, Sender, Target
from onceflow.contracts.target_block import SenderBlock, TargetBlock, TargetSpec
from onceflow.errors import AbortableError, RecordError

COLUMNS = parse_columns("n BIGINT NOT NULL, page STRING")
"""Of every batch. The value of a record is `{"n": 1, "page": "/1"}`."""
DELIVERY = "contract"
TOPIC = "views"
STATE = "".join(chr(32 + n % 95) for n in range(4095))
"""The longest that the filter's state gets, with every character that it may have."""
Opened = Callable[..., Target]


class Store(Protocol):
    """A fresh place that a target appends to. Begins empty."""

    @property
    def block(self) -> TargetBlock:
        """Writes to it."""

    def spec(self, delivery: str) -> TargetSpec:
        """All else that the target needs, with `COLUMNS`, for a delivery of that name."""

    def numbers(self) -> Sequence[int]:
        """The column `n` of everything that readers find in it, in any order."""


class RefusingStore(Store, Protocol):
    """For `RefusalPromises`."""

    def refused_number(self) -> int:
        """A value of `n` that it never takes, such as by a constraint."""


class Receiver(Protocol):
    """A fresh receiver that keeps no position."""

    @property
    def block(self) -> SenderBlock:
        """Sends to it."""

    def spec(self, delivery: str) -> TargetSpec:
        """All else that the sender needs."""

    def values(self) -> Sequence[bytes]:
        """Values of all records that it was sent, in the order of their coming."""


class RefusingReceiver(Receiver, Protocol):
    """For the last test of `SenderContract`."""

    def refuse(self, value: bytes) -> None:
        """Refuse a record with this value for good from now on."""


def record(number: int, partition: int = 0, offset: int | None = None) -> Record:
    """A record whose row has this number."""
    value = b'{"n": %d, "page": "/%d"}' % (number, number)
    at = number if offset is None else offset
    return Record(TOPIC, partition, at, 1_700_000_000_000 + at, b"%d" % number, value)


def batch(claim: Claim, *numbers: int, state: str = "") -> Batch:
    """The next records of one partition, and the position that they lead to."""
    partition = claim.place[1]
    start = claim.mark.offset if claim.mark else 0
    records = [record(n, partition, start + i) for i, n in enumerate(numbers)]
    rows = [(n, f"/{n}") for n in numbers]
    end = start + max(1, len(numbers))
    return Batch(records, rows, [Move(claim, Mark(end, state or f"after {end}"))])


def after(claim: Claim, written: Batch) -> Claim:
    """The claim with the position that a batch led to."""
    [mark] = [move.to for move in written.moves if move.claim.place == claim.place]
    return replace(claim, mark=mark)


def joined(*batches: Batch) -> Batch:
    """One batch of several partitions."""
    return Batch(
        [one for each in batches for one in each.records],
        [one for each in batches for one in each.rows],
        [one for each in batches for one in each.moves],
    )


class TakingRows:
    """A target that takes tables, for tests that write rows."""

    def __init__(self, target: Target, columns: Columns = COLUMNS) -> None:
        self.check, self.probe, self.close = target.check, target.probe, target.close
        self.claim, self.positions = target.claim, target.positions
        self._target = target
        self._columns = columns

    def write(self, batch: Batch) -> None:
        """Write the rows as a table."""
        self._target.write(self._with_table(batch))

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Find the rows that are refused."""
        return self._target.refused(self._with_table(batch))

    def _with_table(self, batch: Batch) -> Batch:
        from onceflow.columns.tables import table_of  # noqa: PLC0415  it needs Arrow

        table = table_of(self._columns, batch.rows) if batch.rows else None
        return replace(batch, rows=(), table=table)


class _Fixtures:
    @pytest.fixture
    def store(self) -> Store:
        """A fresh place."""
        raise NotImplementedError("give your test class a fixture `store`")

    @pytest.fixture
    def opened(self, store: Store) -> Iterator[Opened]:
        """Open a target of its own each time, checked, by the name of its delivery."""
        with ExitStack() as stack:

            def open_target(delivery: str = DELIVERY) -> Target:
                target = store.block.target(store.spec(delivery))
                stack.callback(target.close)
                target.check()
                return TakingRows(target) if store.block.takes == "table" else target

            yield open_target


class TargetContract(_Fixtures):
    """The promises of every target."""

    def test_unknown_keys_are_refused(self, store: Store) -> None:
        given = store.block.model_dump(by_alias=True, exclude_unset=True)
        with pytest.raises(ValidationError):
            type(store.block).model_validate({**given, "no_such_key": 1})

    def test_a_batch_is_there_when_write_returns_and_so_is_its_position(
        self, store: Store, opened: Opened
    ) -> None:
        target = opened()
        claim = target.claim((TOPIC, 0))
        assert claim.mark is None
        written = batch(claim, 1, 2, 3)
        target.write(written)
        assert sorted(store.numbers()) == [1, 2, 3]
        mark = written.moves[0].to
        assert target.positions() == {(TOPIC, 0): mark}
        # Of another process, after a crash.
        successor = opened()
        assert successor.positions() == {(TOPIC, 0): mark}
        assert successor.claim((TOPIC, 0)).mark == mark

    def test_batches_follow_one_another(self, store: Store, opened: Opened) -> None:
        target = opened()
        claim = target.claim((TOPIC, 0))
        for first in range(0, 20, 5):
            written = batch(claim, *range(first, first + 5))
            target.write(written)
            claim = after(claim, written)
        assert sorted(store.numbers()) == [*range(20)]
        assert target.positions()[TOPIC, 0].offset == 20

    def test_a_batch_that_is_written_again_changes_nothing(
        self, store: Store, opened: Opened
    ) -> None:
        target = opened()
        claim = target.claim((TOPIC, 0))
        first = batch(claim, 1, 2)
        target.write(first)
        target.write(first)
        second = batch(after(claim, first), 3)
        target.write(second)
        target.write(second)
        assert sorted(store.numbers()) == [1, 2, 3]

    def test_a_batch_without_rows_moves_the_position(self, store: Store, opened: Opened) -> None:
        target = opened()
        written = batch(target.claim((TOPIC, 0)))
        target.write(written)
        assert store.numbers() == []
        assert opened().claim((TOPIC, 0)).mark == written.moves[0].to

    def test_the_state_of_the_filter_is_kept_as_it_is(self, opened: Opened) -> None:
        target = opened()
        written = batch(target.claim((TOPIC, 0)), 1, state=STATE)
        target.write(written)
        assert target.positions()[TOPIC, 0].state == STATE
        mark = opened().claim((TOPIC, 0)).mark
        assert mark is not None
        assert mark.state == STATE

    def test_partitions_have_positions_of_their_own(self, store: Store, opened: Opened) -> None:
        target = opened()
        zero, one = target.claim((TOPIC, 0)), target.claim((TOPIC, 1))
        other = target.claim(("other", 0))
        both = joined(batch(zero, 1, 2), batch(one, 3))
        target.write(both)
        target.write(batch(after(one, both), 4))
        found = target.positions()
        assert {place: mark.offset for place, mark in found.items()} == {
            (TOPIC, 0): 2,
            (TOPIC, 1): 2,
        }
        assert other.mark is None
        assert sorted(store.numbers()) == [1, 2, 3, 4]

    def test_deliveries_have_positions_of_their_own(self, store: Store, opened: Opened) -> None:
        first, second = opened("first"), opened("second")
        first.write(batch(first.claim((TOPIC, 0)), 1))
        assert second.positions() == {}
        claim = second.claim((TOPIC, 0))
        assert claim.mark is None
        second.write(batch(claim, 2))
        assert sorted(store.numbers()) == [1, 2]

    def test_a_newer_claim_fences_an_older_one(self, store: Store, opened: Opened) -> None:
        old, new = opened(), opened()
        before = old.claim((TOPIC, 0))
        written = batch(before, 1)
        old.write(written)
        claim = new.claim((TOPIC, 0))
        assert claim.claim_epoch > before.claim_epoch
        assert claim.mark == written.moves[0].to
        with pytest.raises(AbortableError):
            old.write(batch(after(before, written), 2))
        new.write(batch(claim, 3))
        with pytest.raises(AbortableError):
            old.write(batch(after(before, written), 4))
        assert sorted(store.numbers()) == [1, 3]
        assert new.positions()[TOPIC, 0].offset == 2

    def test_an_older_claim_fences_even_if_nothing_was_written(
        self, store: Store, opened: Opened
    ) -> None:
        old, new = opened(), opened()
        before = old.claim((TOPIC, 0))
        new.claim((TOPIC, 0))
        with pytest.raises(AbortableError):
            old.write(batch(before, 1))
        assert store.numbers() == []
        assert old.positions() == {}

    def test_a_claim_of_one_partition_leaves_others_alone(
        self, store: Store, opened: Opened
    ) -> None:
        old, new = opened(), opened()
        kept = old.claim((TOPIC, 0))
        old.claim((TOPIC, 1))
        new.write(batch(new.claim((TOPIC, 1)), 1))
        old.write(batch(kept, 2))
        assert sorted(store.numbers()) == [1, 2]

    def test_a_target_is_well_and_can_be_closed_at_any_point(
        self, store: Store, opened: Opened
    ) -> None:
        target = opened()
        target.check()
        target.probe()
        target.close()
        target.close()
        never_used = store.block.target(store.spec(DELIVERY))
        never_used.close()


class RefusalPromises(_Fixtures):
    """The promises of a target that refuses some rows."""

    def test_a_refused_row_is_named_and_nothing_of_its_batch_is_written(
        self, store: RefusingStore, opened: Opened
    ) -> None:
        target, poison = opened(), store.refused_number()
        claim = target.claim((TOPIC, 0))
        bad = batch(claim, 1, poison, 2)
        with pytest.raises(RecordError):
            target.write(bad)
        assert [*target.refused(bad)] == [1]
        assert all(target.refused(bad).values())
        assert (store.numbers(), target.positions()) == ([], {})
        good = Batch([bad.records[0], bad.records[2]], [bad.rows[0], bad.rows[2]], bad.moves)
        target.write(good)
        assert sorted(store.numbers()) == [1, 2]
        assert target.positions()[TOPIC, 0].offset == 3

    def test_to_look_for_refused_rows_writes_nothing(
        self, store: RefusingStore, opened: Opened
    ) -> None:
        target = opened()
        assert target.refused(batch(target.claim((TOPIC, 0)), 1, 2)) == {}
        assert (store.numbers(), target.positions()) == ([], {})


class SenderContract:
    """The promises of a sender to a receiver that keeps no position."""

    @pytest.fixture
    def receiver(self) -> Receiver:
        """A fresh receiver."""
        raise NotImplementedError("give your test class a fixture `receiver`")

    @pytest.fixture
    def sender(self, receiver: Receiver) -> Iterator[Sender]:
        """A sender, checked."""
        sender = receiver.block.sender(receiver.spec(DELIVERY))
        try:
            sender.check()
            yield sender
        finally:
            sender.close()

    def test_a_look_carries_no_record(self, receiver: Receiver, sender: Sender) -> None:
        sender.probe()
        assert receiver.values() == []

    def test_every_record_is_acknowledged_and_there(
        self, receiver: Receiver, sender: Sender
    ) -> None:
        records = [record(n) for n in range(20)]
        answers = sender.send(records, 1)
        assert answers.acknowledged == {*range(20)}
        assert (answers.refused, answers.failure) == ({}, None)
        assert Counter(receiver.values()) == Counter(one.value for one in records)

    def test_records_of_one_key_come_in_order(self, receiver: Receiver, sender: Sender) -> None:
        records = [record(n)._replace(key=b"one") for n in range(20)]
        sender.send(records, 1)
        assert [*receiver.values()] == [one.value for one in records]

    def test_to_send_nothing_is_done_at_once(self, receiver: Receiver, sender: Sender) -> None:
        assert sender.send([], 1).failure is None
        assert receiver.values() == []

    def test_a_refused_record_is_named_and_holds_up_no_other(
        self, receiver: RefusingReceiver, sender: Sender
    ) -> None:
        records = [record(n) for n in range(5)]
        assert records[2].value is not None
        receiver.refuse(records[2].value)
        answers = sender.send(records, 1)
        assert [*answers.refused] == [2]
        assert answers.refused[2]
        assert answers.acknowledged == {0, 1, 3, 4}
        assert answers.failure is None

"""The promises of a source, a test for each. From the simplest to the most destructive."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from multiprocessing.connection import Connection as Pipe

import pytest
from pydantic import ValidationError

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position, SourceSpec, Split, TopicRanges
from onceflow.errors import CorruptionError
from onceflow.protocol.identity import is_kafka_topic
from onceflow.protocol.ledger import canonical_json
from onceflow.testing.sources.reading import (
    SETTLE_TIMEOUT_S,
    SPEC,
    CompactedOrigin,
    GrowingOrigin,
    Origin,
    Record,
    RecordsRead,
    ReplaceableOrigin,
    SourceUnderTest,
    TransactionalOrigin,
    TrimmedOrigin,
    Values,
)

SMALL_LIMITS = (1, 2, 3, 5)
"""Limits of a batch that put the borders of ranges at every place of a log of a dozen records."""


def records(name: str, count: int) -> list[Record]:
    """Distinct records; each has a key of its own."""
    return [(f"{name}{i}".encode(), f"{name}-{i}".encode()) for i in range(count)]


class _Fixtures:
    """Fixtures of every test. Only `origin` has to be given."""

    @pytest.fixture
    def origin(self) -> Origin:
        """A fresh place with two empty partitions."""
        raise NotImplementedError("give your test class a fixture `origin`")

    @pytest.fixture
    def connection(self) -> Connection:
        """Reaches the pipeline's brokers. Most sources do not use them."""
        return Connection("")

    @pytest.fixture
    def spec(self) -> SourceSpec:
        """One column, `value BINARY`: the payload. Give your own to set the pipeline's folder."""
        return SPEC

    @pytest.fixture
    def source(self, origin: Origin, connection: Connection, spec: SourceSpec) -> SourceUnderTest:
        """Makes fresh planners and readers of the origin."""
        return SourceUnderTest(origin.block, connection, spec)


class SourceContract(_Fixtures):
    """The promises of every source."""

    def test_unknown_keys_are_refused(self, origin: Origin, source: SourceUnderTest) -> None:
        with pytest.raises(ValidationError):
            type(source.block).model_validate({**origin.block.written, "no_such_key": 1})

    def test_only_topics_are_named_like_topics(
        self, origin: Origin, source: SourceUnderTest
    ) -> None:
        """Others have a colon in their names: they are never taken for topics of the brokers."""
        origin.append(0, records("a", 3))
        split, _ = _split_of(source, records("a", 3))
        assert is_kafka_topic(split.topic) == (source.block.kafka_topics() is not None)

    def test_positions_are_canonical(self, origin: Origin, source: SourceUnderTest) -> None:
        origin.append(0, records("a", 12))
        reading = RecordsRead(source)
        positions = [reading.position]
        while reading.advance():
            positions.append(reading.position)
        for position in positions:
            # Also in the order of their keys.
            assert json.dumps(position) == json.dumps(json.loads(canonical_json(position)))

    def test_rest_is_rest(self, origin: Origin, source: SourceUnderTest) -> None:
        """A source without anything new returns the position that it was given."""
        reading = RecordsRead(source)
        origin.append(1, records("a", 3))
        reading.until({1: _values(records("a", 3))})
        for _ in range(3):
            found = reading.planner.latest_position(reading.position, None)
            assert json.dumps(found) == json.dumps(reading.position)

    def test_silence_is_told(self, origin: Origin, source: SourceUnderTest) -> None:
        """A source that tells silence is silent where nothing follows, and only there."""
        if not source.block.capabilities.tells_silence:
            return
        reading = RecordsRead(source)
        first, second = records("a", 3), records("b", 1)
        origin.append(1, first)
        reading.until({1: _values(first)})
        assert reading.planner.is_silent(reading.position)
        origin.append(0, second)
        assert not reading.planner.is_silent(reading.position)

    def test_everything_once_in_order(self, origin: Origin, source: SourceUnderTest) -> None:
        first, second, third = records("a", 7), records("b", 5), records("c", 4)
        reading = RecordsRead(source)
        origin.append(0, first)
        reading.until({0: _values(first)})
        origin.append(1, second)
        origin.append(0, third)
        reading.until({0: _values(first, third), 1: _values(second)})
        reading.assert_contiguous()

    def test_limit_holds(self, origin: Origin, source: SourceUnderTest) -> None:
        """No batch is larger than its limit, and each makes progress."""
        long, short = records("a", 12), records("b", 2)
        origin.append(0, long)
        origin.append(1, short)
        for limit in SMALL_LIMITS:
            reading = RecordsRead(source, max_records=limit)
            reading.until({0: _values(long), 1: _values(short)})
            reading.assert_contiguous()
            sizes = [_size(reading.planner.ranges(*batch)) for batch in reading.batches]
            assert max(sizes) <= limit

    def test_frozen_end(self, origin: Origin, source: SourceUnderTest) -> None:
        """A frozen source reads nothing that came later."""
        before = records("a", 6)
        origin.append(0, before)
        reading = RecordsRead(source, max_records=4)
        reading.planner.freeze_latest()
        origin.append(0, records("b", 3))
        origin.append(1, records("c", 3))
        reading.until({0: _values(before)})
        reading.until_idle()
        assert reading.values == {0: _values(before)}

    def test_same_split_same_records(self, origin: Origin, source: SourceUnderTest) -> None:
        """Read again, by the same reader and by others."""
        written = records("a", 40)
        origin.append(0, written)
        start, end = _batch_of(source, {0: _values(written)})
        reader, splits = source.reader(), source.planner().splits(start, end)
        first = [source.values([split], reader) for split in splits]
        assert [*chain(*first)] == _values(written)
        assert [source.values([split], reader) for split in splits] == first
        assert [*source.planner().splits(start, end)] == [*splits]
        assert [source.values([split]) for split in splits] == first

    def test_parts_of_a_split(self, origin: Origin, source: SourceUnderTest) -> None:
        """A split can be cut anywhere."""
        written = records("a", 9)
        origin.append(0, written)
        split, whole = _split_of(source, written)
        reader = source.reader()
        for middle in range(split.start + 1, split.end):
            later = source.values([replace(split, start=middle)], reader)
            earlier = source.values([replace(split, end=middle)], reader)
            assert earlier + later == whole

    def test_splits_read_together(self, origin: Origin, source: SourceUnderTest) -> None:
        """In every order, next to holes, and again from where they ended."""
        reading, reader = RecordsRead(source), source.reader()
        written: dict[int, list[bytes]] = {0: [], 1: []}
        for step in range(6):
            added = {p: records(f"s{step}p{p}-", 4 * step % 7 + p) for p in written}
            for partition, batch in added.items():
                origin.append(partition, batch)
                written[partition] += _values(batch)
            start = reading.position
            reading.until({p: values for p, values in written.items() if values})
            splits = reading.planner.splits(start, reading.position)
            for order in (splits, splits[::-1]):
                expected = _values(*(added[split.partition] for split in order))
                assert source.values(order, reader) == expected

    def test_abandoned_read(self, origin: Origin, source: SourceUnderTest) -> None:
        """A read that was not finished spoils nothing."""
        first, second = records("a", 30), records("b", 30)
        origin.append(0, first)
        origin.append(1, second)
        start, end = _batch_of(source, {0: _values(first), 1: _values(second)})
        reader, splits = source.reader(), source.planner().splits(start, end)
        expected = [source.values([split], reader) for split in splits]
        assert [*chain(*expected)] == _values(first, second)
        for split in splits:
            unfinished = iter(reader.read([split]))
            next(unfinished, None)
            del unfinished
            assert [source.values([each], reader) for each in splits] == expected

    def test_replay_needs_the_log_only(self, origin: Origin, source: SourceUnderTest) -> None:
        origin.append(0, records("a", 5))
        start, end = _batch_of(source, {0: _values(records("a", 5))})
        planner, copied = source.planner(), json.loads(json.dumps(end))
        assert planner.ranges(None, end) == planner.ranges(start, end)
        assert [*planner.splits(start, copied)] == [*planner.splits(start, end)]

    def test_repaired_position(self, origin: Origin, source: SourceUnderTest) -> None:
        """A position can be made again from the ranges before it."""
        written = records("a", 8)
        origin.append(0, written)
        reading = RecordsRead(source, max_records=3)
        reading.advance()
        reading.advance()
        start, end = reading.batches[-1]
        ranges = reading.planner.ranges(start, end)
        for like in (end, None):
            repaired = source.planner().position(like, ranges)
            assert source.planner().ranges(None, repaired) == ranges
            RecordsRead(source, repaired, values=reading.values).until({0: _values(written)})

    def test_killed_reader(self, origin: Origin, source: SourceUnderTest) -> None:
        """A worker that is killed in the middle leaves the split as it was."""
        written = records("a", 50)
        origin.append(0, written)
        split, expected = _split_of(source, written)
        _in_process(_read_some_and_wait, source, split)
        assert _in_process(_read, source, split) == expected


class TransactionPromises(_Fixtures):
    """More promises, of a source whose origin has transactions."""

    def test_undecided_is_unread(
        self, origin: TransactionalOrigin, source: SourceUnderTest
    ) -> None:
        """Nor is it skipped."""
        before, within, after = records("a", 2), records("b", 3), records("c", 2)
        origin.append(0, before)
        transaction = origin.begin(0, within)
        origin.append(0, after)
        reading = RecordsRead(source)
        reading.until({0: _values(before)})
        transaction.commit()
        reading.until({0: _values(before, within, after)})

    def test_undecided_is_no_silence(
        self, origin: TransactionalOrigin, source: SourceUnderTest
    ) -> None:
        if not source.block.capabilities.tells_silence:
            return
        reading, first = RecordsRead(source), records("a", 2)
        origin.append(0, first)
        reading.until({0: _values(first)})
        transaction = origin.begin(0, records("b", 1))
        reading.until_idle()
        is_silent = reading.planner.is_silent(reading.position)
        transaction.abort()
        assert not is_silent

    def test_void_records_leave_holes(
        self, origin: TransactionalOrigin, source: SourceUnderTest
    ) -> None:
        """At the start, in the middle and at the end of ranges, and ranges that are all hole."""
        origin.begin(0, records("x", 4)).abort()
        first = records("a", 2)
        origin.append(0, first)
        origin.begin(0, records("y", 5)).abort()
        second = records("b", 3)
        origin.begin(0, second).commit()
        origin.begin(0, records("z", 4)).abort()
        for limit in (*SMALL_LIMITS, None):
            reading = RecordsRead(source, max_records=limit)
            reading.until({0: _values(first, second)})
            reading.assert_contiguous()


class CompactionPromises(_Fixtures):
    """More promises, of a source whose origin drops records that have a newer one of their key."""

    def test_compaction_leaves_holes(
        self, origin: CompactedOrigin, source: SourceUnderTest
    ) -> None:
        """At the start, in the middle and at the end of ranges that were planned before it."""
        old = [(b"k%d" % (i % 4), b"old-%d" % i) for i in range(12)]
        new = [(b"k%d" % i, b"new-%d" % i) for i in range(4)]
        origin.append(0, [*old[:6], (b"once", b"kept"), *old[6:], *new])
        for limit in (*SMALL_LIMITS, None):
            reading = RecordsRead(source, max_records=limit)
            reading.until_idle()
            if limit == SMALL_LIMITS[0]:
                origin.compact()
            planner = source.planner()
            found = [
                value
                for start, end in reading.batches
                for split in planner.splits(start, end)
                for value in source.values([split])
            ]
            assert found == [b"kept", *_values(new)]


class RetentionPromises(_Fixtures):
    """More promises, of a source whose origin drops old records."""

    def test_lost_to_retention(self, origin: TrimmedOrigin, source: SourceUnderTest) -> None:
        """A range that retention has overtaken is an error, never a shorter range."""
        written = records("a", 10)
        origin.append(0, written)
        split, _ = _split_of(source, written)
        reader = source.reader()
        origin.delete_before(0, split.start + 1)
        for each in (reader, source.reader()):
            with pytest.raises(CorruptionError):
                source.values([split], each)


class IdentityPromises(_Fixtures):
    """More promises, of a source that notices when its origin was deleted and created again."""

    def test_replaced_origin(self, origin: ReplaceableOrigin, source: SourceUnderTest) -> None:
        written = records("a", 5)
        origin.append(0, written)
        start, end = _batch_of(source, {0: _values(written)})
        planner = source.planner()
        split = planner.splits(start, end)[0]
        origin.recreate()
        origin.append(0, records("b", 9))
        for each in (planner, source.planner()):
            with pytest.raises(CorruptionError):
                each.latest_position(end, None)
        with pytest.raises(CorruptionError):
            source.values([split])


class GrowthPromises(_Fixtures):
    """More promises, of a source whose origin may get more partitions."""

    def test_new_partition(self, origin: GrowingOrigin, source: SourceUnderTest) -> None:
        """It enters at its beginning, which is logged."""
        first, second, third = records("a", 3), records("b", 4), records("c", 2)
        origin.append(0, first)
        reading = RecordsRead(source)
        reading.until({0: _values(first)})
        added = origin.add_partition()
        origin.append(added, second)
        origin.append(0, third)
        reading.until({0: _values(first, third), added: _values(second)})
        reading.assert_contiguous()


def _values(*written: Sequence[Record]) -> list[bytes]:
    return [value for batch in written for _, value in batch]


def _batch_of(source: SourceUnderTest, written: Values) -> tuple[Position, Position]:
    """Start and end of a range that holds what was written."""
    reading = RecordsRead(source)
    reading.until(written)
    return reading.batches[0][0], reading.position


def _split_of(source: SourceUnderTest, written: Sequence[Record]) -> tuple[Split, list[bytes]]:
    """The first split of what was written to partition 0, and what it holds."""
    split = source.planner().splits(*_batch_of(source, {0: _values(written)}))[0]
    return split, source.values([split])


def _size(ranges: TopicRanges) -> int:
    return sum(end - start for bounds in ranges.values() for start, end in bounds.values())


def _in_process(
    target: Callable[[SourceUnderTest, Split, Pipe], None], source: SourceUnderTest, split: Split
) -> object:
    """Receive what a new process sends; then kill the process, whatever it does."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(source, split, there), daemon=True)
    process.start()
    there.close()
    try:
        assert here.poll(SETTLE_TIMEOUT_S), "a reader in another process does not answer"
        return here.recv()
    except EOFError as error:
        raise AssertionError("a reader in another process has died") from error
    finally:
        process.kill()
        process.join()


def _read(source: SourceUnderTest, split: Split, pipe: Pipe) -> None:
    pipe.send(source.values([split]))


def _read_some_and_wait(source: SourceUnderTest, split: Split, pipe: Pipe) -> None:
    for batch in source.reader().read([split]):
        pipe.send(batch.num_rows)
        pipe.recv()  # forever: the process is killed

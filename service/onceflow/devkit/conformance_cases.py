"""The promises of a source, one case for each. Order: from the simplest to the most destructive."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection as Pipe

from onceflow.contracts.source import Position, Source, Split, TopicRanges
from onceflow.devkit.conformance_origin import (
    SETTLE_TIMEOUT_S,
    Feature,
    NonconformanceError,
    Origin,
    Reading,
    Record,
    Values,
    read_values,
    require_equal,
)
from onceflow.errors import CorruptionError
from onceflow.protocol.ledger import canonical_json

_SMALL_LIMITS = (1, 2, 3, 5)
"""Limits of a batch that put the borders of ranges at every place of a log of a dozen records."""


@dataclass(frozen=True)
class Case:
    """One promise.

    Args:
        promise: what must hold, as a sentence.
        check: raises NonconformanceError if it does not.
        needs: features of the origin.
    """

    promise: str
    check: Callable[[Origin], None]
    needs: frozenset[Feature] = frozenset()

    def __str__(self) -> str:
        return self.check.__name__.lstrip("_")


def records(name: str, count: int) -> list[Record]:
    """Distinct records; each has a key of its own."""
    return [(f"{name}{i}".encode(), f"{name}-{i}".encode()) for i in range(count)]


def _values(*written: Sequence[Record]) -> list[bytes]:
    return [value for batch in written for _, value in batch]


def _start(origin: Origin, max_records: int | None = None) -> Reading:
    source = origin.source()
    return Reading(source, source.initial_position(), max_records)


def _batch_of(origin: Origin, written: Values) -> tuple[Position, Position, Source]:
    """Start and end of a range that holds what was written, and the source that planned it."""
    reading = _start(origin)
    reading.until(written)
    return reading.batches[0][0], reading.position, reading.source


def _split_of(origin: Origin, written: Sequence[Record]) -> tuple[Split, Source]:
    """The first split of what was written to partition 0."""
    start, end, source = _batch_of(origin, {0: _values(written)})
    return source.splits(start, end)[0], source


def _size(ranges: TopicRanges) -> int:
    return sum(end - start for bounds in ranges.values() for start, end in bounds.values())


def _require_contiguous(reading: Reading) -> None:
    """Each batch begins where the one before ended."""
    ends: dict[tuple[str, int], int] = {}
    for start, end in reading.batches:
        for topic, bounds in reading.source.ranges(start, end).items():
            for partition, (low, high) in bounds.items():
                expected = ends.get((topic, partition), low)
                require_equal(f"start of {topic}-{partition}", expected, low)
                ends[topic, partition] = high


def _require_corruption(what: str, action: Callable[[], object]) -> None:
    try:
        found = action()
    except CorruptionError:
        return
    raise NonconformanceError(f"{what}: expected CorruptionError, found {found!r}")


def _in_process(
    target: Callable[[Source, Split, Pipe], None], source: Source, split: Split
) -> object:
    """What a new process sends; it is killed then, whatever it does."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(source, split, there), daemon=True)
    process.start()
    there.close()
    try:
        if here.poll(SETTLE_TIMEOUT_S):
            return here.recv()
    except EOFError as error:
        raise NonconformanceError("a reader in another process has died") from error
    finally:
        process.kill()
        process.join()
    raise NonconformanceError("a reader in another process does not answer")


def _read(source: Source, split: Split, pipe: Pipe) -> None:
    pipe.send(read_values(source, [split]))


def _read_some_and_wait(source: Source, split: Split, pipe: Pipe) -> None:
    for batch in source.read([split]):
        pipe.send(batch.num_rows)
        pipe.recv()  # for ever: the process is killed


def _positions_are_canonical(origin: Origin) -> None:
    origin.append(0, records("a", 12))
    reading = _start(origin)
    positions = [reading.position]
    while reading.advance():
        positions.append(reading.position)
    for position in positions:
        text = canonical_json(position)
        require_equal("key order", json.dumps(json.loads(text)), json.dumps(position))


def _rest_is_rest(origin: Origin) -> None:
    reading = _start(origin)
    origin.append(1, records("a", 3))
    reading.until({1: _values(records("a", 3))})
    settled = reading.position
    for _ in range(3):
        found = reading.source.latest_position(settled, None)
        require_equal("position of an idle source", json.dumps(settled), json.dumps(found))


def _silence_is_told(origin: Origin) -> None:
    first, second = records("a", 3), records("b", 1)
    reading = _start(origin)
    if not reading.source.capabilities.tells_silence:
        return
    origin.append(1, first)
    reading.until({1: _values(first)})
    require_equal("silence at the end", True, reading.source.is_silent(reading.position))
    origin.append(0, second)
    require_equal("silence before records", False, reading.source.is_silent(reading.position))


def _undecided_is_no_silence(origin: Origin) -> None:
    reading = _start(origin)
    if not reading.source.capabilities.tells_silence:
        return
    first = records("a", 2)
    origin.append(0, first)
    reading.until({0: _values(first)})
    transaction = origin.begin(0, records("b", 1))
    reading.until_idle()
    found = reading.source.is_silent(reading.position)
    transaction.abort()
    require_equal("silence before an open transaction", False, found)


def _everything_once_in_order(origin: Origin) -> None:
    first, second, third = records("a", 7), records("b", 5), records("c", 4)
    reading = _start(origin)
    origin.append(0, first)
    reading.until({0: _values(first)})
    origin.append(1, second)
    origin.append(0, third)
    reading.until({0: _values(first, third), 1: _values(second)})
    _require_contiguous(reading)


def _limit_holds(origin: Origin) -> None:
    long, short = records("a", 12), records("b", 2)
    origin.append(0, long)
    origin.append(1, short)
    for limit in _SMALL_LIMITS:
        reading = _start(origin, limit)
        reading.until({0: _values(long), 1: _values(short)})
        _require_contiguous(reading)
        for start, end in reading.batches:
            size = _size(reading.source.ranges(start, end))
            if size > limit:
                raise NonconformanceError(f"a batch of {size} offsets with a limit of {limit}")


def _frozen_end(origin: Origin) -> None:
    before = records("a", 6)
    origin.append(0, before)
    source = origin.source()
    source.freeze_latest()
    origin.append(0, records("b", 3))
    origin.append(1, records("c", 3))
    reading = Reading(source, source.initial_position(), 4)
    reading.until({0: _values(before)})
    reading.until_idle()
    require_equal("records read", {0: _values(before)}, reading.values)


def _same_split_same_records(origin: Origin) -> None:
    written = records("a", 40)
    origin.append(0, written)
    start, end, source = _batch_of(origin, {0: _values(written)})
    splits = source.splits(start, end)
    first = [read_values(source, [split]) for split in splits]
    require_equal("records", _values(written), [*chain(*first)])
    require_equal("a split read again", first, [read_values(source, [s]) for s in splits])
    fresh = origin.source()
    require_equal("splits of another instance", splits, fresh.splits(start, end))
    require_equal("split of another instance", first, [read_values(fresh, [s]) for s in splits])


def _parts_of_a_split(origin: Origin) -> None:
    written = records("a", 9)
    origin.append(0, written)
    split, source = _split_of(origin, written)
    whole = read_values(source, [split])
    for middle in range(split.start + 1, split.end):
        low = Split(split.topic, split.partition, split.start, middle, split.topic_id)
        high = Split(split.topic, split.partition, middle, split.end, split.topic_id)
        backwards = [read_values(source, [high]), read_values(source, [low])]
        require_equal("two parts of a split", whole, backwards[1] + backwards[0])


def _splits_read_together(origin: Origin) -> None:
    """In every order, beside holes, and again from where they ended."""
    reading = _start(origin)
    written: dict[int, list[bytes]] = {0: [], 1: []}
    for step in range(6):
        added = {p: records(f"s{step}p{p}-", 4 * step % 7 + p) for p in written}
        for partition, batch in added.items():
            origin.append(partition, batch)
            written[partition] += _values(batch)
        start = reading.position
        reading.until({p: values for p, values in written.items() if values})
        splits = reading.source.splits(start, reading.position)
        for order in (splits, splits[::-1]):
            expected = _values(*(added[split.partition] for split in order))
            require_equal("splits together", expected, read_values(reading.source, order))


def _abandoned_read(origin: Origin) -> None:
    first, second = records("a", 30), records("b", 30)
    origin.append(0, first)
    origin.append(1, second)
    start, end, source = _batch_of(origin, {0: _values(first), 1: _values(second)})
    splits = source.splits(start, end)
    expected = [read_values(source, [split]) for split in splits]
    require_equal("records", _values(first, second), [*chain(*expected)])
    for split in splits:
        unfinished = iter(source.read([split]))
        next(unfinished)
        del unfinished
        require_equal(
            "splits after an unfinished read", expected, [read_values(source, [s]) for s in splits]
        )


def _replay_needs_the_log_only(origin: Origin) -> None:
    origin.append(0, records("a", 5))
    reading = _start(origin)
    reading.until({0: _values(records("a", 5))})
    source, (start, end) = reading.source, reading.batches[0]
    require_equal(
        "ranges of the first batch without its start",
        source.ranges(start, end),
        source.ranges(None, end),
    )
    copied = json.loads(json.dumps(end))
    require_equal("splits", source.splits(start, end), source.splits(start, copied))


def _repaired_position(origin: Origin) -> None:
    written = records("a", 8)
    origin.append(0, written)
    reading = _start(origin, 3)
    reading.advance()
    reading.advance()
    start, end = reading.batches[-1]
    ranges = reading.source.ranges(start, end)
    for like in (end, None):
        repaired = origin.source().position(like, ranges)
        require_equal(
            "ranges of a repaired position", ranges, origin.source().ranges(None, repaired)
        )
        rest = Reading(origin.source(), repaired, values={0: list(reading.values[0])})
        rest.until({0: _values(written)})


def _pickled_copy(origin: Origin) -> None:
    written = records("a", 5)
    origin.append(0, written)
    split, source = _split_of(origin, written)
    expected = read_values(source, [split])
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301  what Spark does with it
    require_equal("split read by a copy", expected, read_values(copy, [split]))


def _killed_reader(origin: Origin) -> None:
    written = records("a", 50)
    origin.append(0, written)
    split, source = _split_of(origin, written)
    expected = read_values(source, [split])
    _in_process(_read_some_and_wait, source, split)
    require_equal("split read by the next worker", expected, _in_process(_read, source, split))


def _undecided_is_unread(origin: Origin) -> None:
    before, within, after = records("a", 2), records("b", 3), records("c", 2)
    origin.append(0, before)
    transaction = origin.begin(0, within)
    origin.append(0, after)
    reading = _start(origin)
    reading.until({0: _values(before)})
    transaction.commit()
    reading.until({0: _values(before, within, after)})


def _void_records_leave_holes(origin: Origin) -> None:
    """At the start, in the middle and at the end of ranges, and ranges that are all hole."""
    origin.begin(0, records("x", 4)).abort()
    first = records("a", 2)
    origin.append(0, first)
    origin.begin(0, records("y", 5)).abort()
    second = records("b", 3)
    origin.begin(0, second).commit()
    origin.begin(0, records("z", 4)).abort()
    for limit in (*_SMALL_LIMITS, None):
        reading = _start(origin, limit)
        reading.until({0: _values(first, second)})
        _require_contiguous(reading)


def _compaction_leaves_holes(origin: Origin) -> None:
    """At the start, in the middle and at the end of ranges that were planned before it."""
    old = [(b"k%d" % (i % 4), b"old-%d" % i) for i in range(12)]
    new = [(b"k%d" % i, b"new-%d" % i) for i in range(4)]
    origin.append(0, [*old[:6], (b"once", b"kept"), *old[6:], *new])
    expected = [b"kept", *_values(new)]
    for limit in (*_SMALL_LIMITS, None):
        reading = _start(origin, limit)
        reading.until_idle()
        if limit == _SMALL_LIMITS[0]:
            origin.compact()
        again = Reading(origin.source(), reading.position)
        found = [
            value
            for start, end in reading.batches
            for split in again.source.splits(start, end)
            for value in read_values(again.source, [split])
        ]
        require_equal("records after compaction", expected, found)


def _lost_to_retention(origin: Origin) -> None:
    written = records("a", 10)
    origin.append(0, written)
    split, source = _split_of(origin, written)
    origin.delete_before(0, split.start + 1)
    for reader in (source, origin.source()):
        _require_corruption(
            "a range whose records were deleted", partial(read_values, reader, [split])
        )


def _replaced_origin(origin: Origin) -> None:
    written = records("a", 5)
    origin.append(0, written)
    start, end, source = _batch_of(origin, {0: _values(written)})
    split = source.splits(start, end)[0]
    origin.recreate()
    origin.append(0, records("b", 9))
    for planner in (source, origin.source()):
        _require_corruption(
            "planning over another origin", partial(planner.latest_position, end, None)
        )
    _require_corruption("reading another origin", partial(read_values, origin.source(), [split]))


def _new_partition(origin: Origin) -> None:
    first, second, third = records("a", 3), records("b", 4), records("c", 2)
    origin.append(0, first)
    reading = _start(origin)
    reading.until({0: _values(first)})
    added = origin.add_partition()
    origin.append(added, second)
    origin.append(0, third)
    reading.until({0: _values(first, third), added: _values(second)})
    _require_contiguous(reading)


CASES: Sequence[Case] = (
    Case("positions are canonical JSON", _positions_are_canonical),
    Case("an idle source returns the very position it was given", _rest_is_rest),
    Case("a source that tells silence is silent where nothing follows", _silence_is_told),
    Case("every record is read once and in order, in contiguous ranges", _everything_once_in_order),
    Case("no batch is larger than its limit, and each makes progress", _limit_holds),
    Case("a frozen source reads nothing that came later", _frozen_end),
    Case("a split read again, also by others, holds the same", _same_split_same_records),
    Case("a split can be cut anywhere", _parts_of_a_split),
    Case("splits may be read together, in any order", _splits_read_together),
    Case("an abandoned read spoils nothing", _abandoned_read),
    Case("a replay needs nothing but the log", _replay_needs_the_log_only),
    Case("a position can be made again from its ranges", _repaired_position),
    Case("a source works after it was pickled", _pickled_copy),
    Case("a reader killed in the middle leaves the split as it was", _killed_reader),
    Case(
        "nothing undecided is read, nor skipped",
        _undecided_is_unread,
        frozenset({Feature.TRANSACTIONS}),
    ),
    Case(
        "a source that tells silence is not silent before what is undecided",
        _undecided_is_no_silence,
        frozenset({Feature.TRANSACTIONS}),
    ),
    Case(
        "aborted records and markers leave holes, and nothing else",
        _void_records_leave_holes,
        frozenset({Feature.TRANSACTIONS}),
    ),
    Case(
        "compaction leaves holes, and nothing else",
        _compaction_leaves_holes,
        frozenset({Feature.COMPACTION}),
    ),
    Case(
        "a range that retention has overtaken is an error",
        _lost_to_retention,
        frozenset({Feature.RETENTION}),
    ),
    Case(
        "an origin that was deleted and created again is an error",
        _replaced_origin,
        frozenset({Feature.IDENTITY}),
    ),
    Case(
        "a new partition enters at its beginning, which is logged",
        _new_partition,
        frozenset({Feature.GROWTH}),
    ),
)

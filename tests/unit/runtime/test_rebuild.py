"""A head without a ledger: from the tails of the output, on a log in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
from onceflow.errors import ConfigError, CorruptionError, LineageError
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.digest import digest_of
from onceflow.protocol.identity import BatchKey, FencingToken, Layout, lineage_of, pipeline_tag
from onceflow.protocol.ledger import NO_PLAN, BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow.protocol.tails import new_generation
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.start.rebuild import rebuild_head
from onceflow.runtime.topics.output_tail import (
    AT_FIRST_START,
    EVERYWHERE,
    FIRST_LOOK_BACK,
    find_newest,
    find_written,
    read_tails,
)

PIPELINE = "views"
TAG = pipeline_tag(PIPELINE)
PLAN = BatchPlan({"s": {"in": {0: (10, 20)}}}, 0, 1000)
FRESH = lineage_of("run-2")
L = 77
"""Lineage of the records."""
assert FRESH != L
BLANK = HeadEntry(
    pipeline=PIPELINE,
    generation=1,
    batch=BatchKey("q2", -1),
    token=FencingToken(1),
    run_id="run-2",
    plan=NO_PLAN,
    sink=SinkState("out", 2, Layout(1, 3)),
    records=RecordCounts(),
    digest="",
    plan_hash="",
    lineage=FRESH,
)


def header(sequence: int, batch_id: int, **other: Any) -> RecordHeader:
    plain = RecordHeader(Flag(0), TAG, 1, PLAN.tag(), batch_id, sequence, L)
    return replace(plain, **other)


def foreign(sequence: int) -> RecordHeader:
    return header(sequence, 0, pipeline_tag=5)


@dataclass
class Log:
    """A topic: partition -> what is left of it, and the offset at which that begins."""

    records: Mapping[int, Sequence[RecordHeader]]
    starts: Mapping[int, int] | None = None
    looked_at: int = 0

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        starts = self.starts or {}
        return {
            p: (starts.get(p, 0), *[starts.get(p, 0) + len(left)] * 2)  # type: ignore[misc]
            for p, left in self.records.items()
        }

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[Record]:
        for partition, (begin, end) in ranges.items():
            first = (self.starts or {}).get(partition, 0)
            for offset in range(begin, end):
                self.looked_at += 1
                one = self.records[partition][offset - first]
                value = f"{partition}/{one.sequence}".encode()
                headers = ((HEADER_NAME, one.pack()),)
                yield Record(topic, partition, offset, 0, b"k", value, headers)

    @property
    def broker(self) -> Broker:
        return cast("Broker", self)


@dataclass
class Plans:
    """A checkpoint: what it has planned and done, and its plans."""

    planned: int
    done: int
    kept: Mapping[int, BatchPlan]

    def facts(self) -> CheckpointFacts:
        return CheckpointFacts("q2", self.planned, self.done)

    def has_plan(self, batch_id: int) -> bool:
        return batch_id in self.kept

    def plan(self, batch_id: int) -> BatchPlan:
        return self.kept[batch_id]


CLOCK: Clock = SystemClock()


def within() -> Deadline:
    return CLOCK.within(5.0)


def rebuilt(log: Log, plans: Plans, blank: HeadEntry = BLANK) -> HeadEntry:
    return rebuild_head(blank, log.broker, cast("Checkpoint", plans), within())


def begun(log: Log, before: HeadEntry | None = None) -> HeadEntry:
    sequence = before.sink.sequence if before else {}
    blank = replace(BLANK, sink=replace(BLANK.sink, sequence=sequence))
    return new_generation(blank, before, read_tails(blank, log.broker, within()))


TWO_GENERATIONS = Log(
    {
        0: [header(1 + n, n, plan_tag=5) for n in range(500)],
        1: [header(1 + n, n, plan_tag=5) for n in range(400)]
        + [header(401 + n, n, generation=2) for n in range(11)],
    }
)


def test_a_partition_of_an_older_generation_does_not_decide_which_batch_is_the_newest() -> None:
    found = rebuilt(TWO_GENERATIONS, Plans(10, 10, {10: PLAN}))
    assert (found.generation, found.batch.batch_id, found.plan) == (2, 10, PLAN)
    assert found.sink.sequence == {0: (501, 500), 1: (411, 411)}
    assert (found.records.written, found.lineage) == (1, L)
    assert found.digest == digest_of([(1, b"k", b"1/411")])


def test_batches_without_output_lead_beyond_the_newest_in_the_output() -> None:
    found = rebuilt(TWO_GENERATIONS, Plans(13, 12, {10: PLAN, 12: NO_PLAN}))
    assert (found.generation, found.batch.batch_id) == (2, 12)
    assert found.sink.sequence == {0: (501, 500), 1: (412, 411)}
    assert found.digest == digest_of([])


@pytest.mark.parametrize(
    ("plans", "why"),
    [
        (Plans(9, 9, {9: PLAN}), "older than the output"),
        (Plans(10, 10, {10: NO_PLAN}), "other input"),
        (Plans(499, 499, {499: PLAN, 10: NO_PLAN}), "other input"),
        (Plans(499, 499, {499: PLAN}), "it is unknown"),
    ],
    ids=["too old", "another plan", "of the generation before", "of either generation"],
)
def test_a_checkpoint_that_is_not_that_of_the_newest_generation_is_refused(
    plans: Plans, why: str
) -> None:
    with pytest.raises(CorruptionError, match=why) as caught:
        rebuilt(TWO_GENERATIONS, plans)
    assert "--new-generation --reason" in caught.value.then


def test_a_checkpoint_whose_first_batch_was_never_committed_rebuilds_a_registration() -> None:
    found = rebuilt(Log({0: [], 1: []}), Plans(0, -1, {0: PLAN}))
    assert (found.generation, found.batch.batch_id, found.plan) == (1, -1, NO_PLAN)
    assert (found.sink.sequence, found.lineage) == ({}, FRESH)


def test_what_a_head_knew_of_a_partition_outlives_its_records() -> None:
    known = replace(BLANK, sink=replace(BLANK.sink, sequence={0: (8, 7), 1: (4, 3)}))
    log = Log({0: [header(9, 1)], 1: []}, starts={0: 8, 1: 3})
    found = rebuilt(log, Plans(1, 1, {1: PLAN}), known)
    assert found.sink.sequence == {0: (9, 9), 1: (4, 3)}


def test_a_new_generation_numbers_on_from_the_output() -> None:
    found = begun(TWO_GENERATIONS)
    assert (found.generation, found.batch.batch_id, found.lineage) == (3, -1, L)
    assert [found.sink.next_sequence(p) for p in (0, 1)] == [501, 412]


def test_a_new_generation_numbers_on_from_an_output_that_is_ahead_of_the_ledger() -> None:
    """A backup of the ledger was restored: its numbers are used already."""
    sink = replace(BLANK.sink, sequence={0: (400, 400), 1: (400, 400)})
    before = replace(BLANK, batch=BatchKey("q1", 7), sink=sink, lineage=L)
    found = begun(TWO_GENERATIONS, before)
    assert (found.generation, found.batch.batch_id, found.lineage) == (3, -1, L)
    assert [found.sink.next_sequence(p) for p in (0, 1)] == [501, 412]
    # A ledger that is as new decides alone: it also knows what retention has removed.
    found = begun(TWO_GENERATIONS, replace(before, generation=2, batch=BatchKey("q2", 10)))
    assert (found.generation, found.batch.batch_id) == (3, -1)
    assert [found.sink.next_sequence(p) for p in (0, 1)] == [401, 401]


@pytest.mark.parametrize("told", [0, L])
def test_the_lineage_is_kept_where_every_partition_proves_its_sequences(told: int) -> None:
    log = Log({0: [header(1, 0, lineage=told)], 1: []})
    assert begun(log).lineage == told


@pytest.mark.parametrize(
    "log",
    [
        Log({0: [header(1, 0)], 1: []}, starts={0: 0, 1: 40}),
        Log({0: [header(1, 0)], 1: [foreign(1)]}, starts={0: 0, 1: 1}),
        Log({0: [header(1, 0)], 1: [header(1, 0, lineage=78)]}),
    ],
    ids=["removed by retention", "only others' records are left", "began again before"],
)
def test_another_lineage_begins_where_a_partition_cannot_prove_its_sequences(log: Log) -> None:
    """Else the numbers of that partition would come again, and readers would discard them."""
    assert begun(log).lineage == FRESH


def test_records_of_a_lineage_that_is_over_do_not_count() -> None:
    old = [header(1 + n, n) for n in range(300)]
    new = [header(1 + n, n, lineage=78, plan_tag=PLAN.tag()) for n in range(3)]
    found = rebuilt(Log({0: [*old, *new], 1: []}), Plans(2, 2, {2: PLAN}))
    assert (found.batch.batch_id, found.lineage, found.sink.sequence[0]) == (2, 78, (3, 3))


def test_a_record_that_at_least_once_wrote_again_does_not_set_the_sequence_back() -> None:
    again = [header(2, 1), header(1, 0)]
    log = Log({0: [header(1 + n, n) for n in range(5)] + again, 1: []})
    assert begun(log).sink.next_sequence(0) == 6
    found = rebuilt(Log({0: [header(1, 0), header(2, 1), *again], 1: []}), Plans(1, 1, {1: PLAN}))
    assert found.digest == digest_of([(0, b"k", b"0/2")])


def test_no_new_generation_begins_from_an_output_without_records() -> None:
    with pytest.raises(LineageError, match="start again without"):
        begun(Log({0: [], 1: [foreign(1)]}))


def test_what_is_written_is_found_between_the_records_of_others() -> None:
    others = [foreign(n) for n in range(2 * FIRST_LOOK_BACK)]
    log = Log({0: others, 1: [header(7, 3), *others]})
    found = find_written(PIPELINE, "out", log.broker, CLOCK, AT_FIRST_START)
    assert found == {1: header(7, 3)}
    assert find_written("another", "out", log.broker, CLOCK, AT_FIRST_START) == {}


def test_an_output_that_may_not_be_read_is_not_taken_for_one_without_records() -> None:
    class Locked(Log):
        def read(self, *_: Any) -> Iterator[Record]:
            raise ConfigError("TOPIC_AUTHORIZATION_FAILED")

    locked = Locked({0: [foreign(1)]})
    with pytest.raises(ConfigError, match="rights of the task `run`"):
        find_written(PIPELINE, "out", locked.broker, CLOCK, AT_FIRST_START)


@pytest.mark.parametrize("alien", [b"", b"short", b"\x02" + header(9, 9).pack()[1:]])
def test_a_header_that_nobody_can_read_keeps_nobody_from_starting(alien: bytes) -> None:
    class Shared(Log):
        def read(self, *what: Any) -> Iterator[Record]:
            *ours, last = super().read(*what)
            yield from [*ours, last._replace(headers=((HEADER_NAME, alien),))]

    log = Shared({0: [header(7, 3), foreign(1)]})
    assert find_written(PIPELINE, "out", log.broker, CLOCK, AT_FIRST_START) == {0: header(7, 3)}
    assert find_newest(BLANK, log.broker, CLOCK) == {0: header(7, 3)}


def test_nothing_is_rebuilt_past_a_header_of_another_version() -> None:
    """It may be of this pipeline and a newer revision: its sequence would be given twice."""

    class Newer(Log):
        def read(self, *what: Any) -> Iterator[Record]:
            for record in super().read(*what):
                yield record._replace(headers=((HEADER_NAME, b"\x02" + header(9, 9).pack()[1:]),))

    with pytest.raises(CorruptionError, match="unknown version"):
        rebuilt(Newer({0: [header(7, 3)]}), Plans(3, 2, {}))


def test_a_first_start_does_not_read_all_of_a_topic_that_it_shares() -> None:
    depth = FIRST_LOOK_BACK * 10 ** (AT_FIRST_START.looks - 1)
    log = Log({0: [header(7, 3), *[foreign(n) for n in range(depth)]]})
    assert find_written(PIPELINE, "out", log.broker, CLOCK, AT_FIRST_START) == {}
    assert log.looked_at < 1.2 * depth
    assert find_written(PIPELINE, "out", log.broker, CLOCK, EVERYWHERE) == {0: header(7, 3)}

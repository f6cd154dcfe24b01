"""The function that Spark calls for each batch, without Spark: what it writes, when it returns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any, cast

import pyarrow as pa
import pytest

from onceflow.contracts.sink import OutputRecord
from onceflow.contracts.source import Position, TopicRanges
from onceflow.errors import CorruptionError, OnceflowError
from onceflow.protocol.commit import MAX_ATTEMPTS
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.digest import Row
from onceflow.protocol.ledger import SinkState
from onceflow.protocol.order import ARRIVAL, SORTED, Order
from onceflow.protocol.query_identity import QueryIdentity
from onceflow.runtime.batch.batch import BatchOutcome, BatchRunner, DrainRequestedError
from onceflow.runtime.batch.divergence import DivergenceDesk
from onceflow.runtime.batch.executed import Execution
from onceflow.runtime.batch.late import LateDesk
from onceflow.runtime.batch.rejects import RejectDesk
from onceflow.runtime.checkpoint.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.records.output import OutputFormat
from onceflow.runtime.records.rows import KEY_COLUMN, VALUE_COLUMN
from tests.faults.mutants.stage import VALUES, Stage
from tests.support.drivers.driver import NOW_MS, PARTITIONS, QUERY_ID
from tests.support.drivers.faulty import Faults

CLOCK_MS = NOW_MS - 3_600_000
"""Of every batch: an hour ago."""
PAUSE_S = 0.3
"""How long a commit is held back for a return that must not come before it."""
END_S = 60.0


@dataclass
class Frame:
    """As much of a DataFrame as a batch asks for."""

    before: Callable[[], object] = lambda: None

    def toArrow(self) -> pa.Table:
        self.before()
        keys = pa.array([b"k%d" % n for n in range(len(VALUES))], pa.binary())
        return pa.table({KEY_COLUMN: keys, VALUE_COLUMN: pa.array(VALUES, pa.binary())})


class _NoRejects:
    """Stands for a desk at which nothing arrives."""

    def recounted(self, execution: Execution) -> Execution:
        return execution

    def of_input(self, *_: object) -> list[DeadLetter]:
        return []

    def of_steps(self, *_: object) -> list[DeadLetter]:
        return []

    def without_null_keys(self, table: pa.Table) -> tuple[pa.Table, Sequence[Row]]:
        return table, ()

    def too_large(self, *_: object) -> Sequence[Row]:
        return ()

    def of_output(self, *_: object) -> list[DeadLetter]:
        return []

    def records(self, *_: object) -> dict[str, Sequence[OutputRecord]]:
        return {}


class _NothingLate:
    def of_batch(self, *_: object) -> tuple[int, list[DeadLetter]]:
        return 0, []


class _Unexplained:
    def explained(self, error: CorruptionError, *_: object) -> CorruptionError:
        return error


_NOTHING_REJECTED = cast("RejectDesk", _NoRejects())
_NOTHING_LATE = cast("LateDesk", _NothingLate())
_NO_CHECKPOINT = cast("Checkpoint", None)
"""It is asked only for sources that a batch did not read."""
_UNEXPLAINED = cast("DivergenceDesk", _Unexplained())


@dataclass
class Batches:
    """A driver and the function that Spark would call; batch n reads offsets [10 n, 10 n + 10)."""

    stage: Stage
    check_output: Callable[[SinkState], None] = lambda _: None
    faults: Faults = field(default_factory=Faults)
    outcomes: list[BatchOutcome] = field(default_factory=list)
    order: Order = SORTED
    keeps_order: bool = True

    def __post_init__(self) -> None:
        driver = self.stage.driver(wrap=self.faults.wrap)
        owner = driver.take_over().owner
        assert driver.head is not None
        self._start = 0
        self.runner = BatchRunner(
            head=driver.head,
            query_id=QUERY_ID,
            token=owner.token,
            run_id=owner.run_id,
            identity=QueryIdentity({"query": "plan"}),
            waivers=(),
            order=self.order,
            delivery=Delivery.EXACTLY_ONCE,
            is_quarantined=False,
            output=OutputFormat("json", "k", None, lambda names: names),
            partition_of=_partitions,
            max_result_bytes=1_000_000,
            share_parameters=dict,
            sources={"s": SourceArithmetic(self._ranges, _position)},
            retired={},
            checkpoint=_NO_CHECKPOINT,
            read_execution=self._execution,
            check_output=self._check_output,
            rejects=_NOTHING_REJECTED,
            late=_NOTHING_LATE,
            divergence=_UNEXPLAINED,
            committer=driver.committer,
            report=self.outcomes.append,
        )

    def run(self, batch_id: int, frame: Frame | None = None, skipped: int = 0) -> None:
        self._start = batch_id * 10 + skipped
        self.runner(cast("Any", frame or Frame()), batch_id)

    def _check_output(self, sink: SinkState) -> None:
        self.check_output(sink)

    def _execution(self) -> Execution:
        positions = {"s": ({"at": self._start}, {"at": self._start + 10})}
        counts = {"s": (10, 0)}
        return Execution(0, CLOCK_MS, positions, counts, late=0, keeps_order=self.keeps_order)

    def _ranges(self, start: Position | None, end: Position) -> TopicRanges:
        assert start is not None
        return {self.stage.name: {0: (start["at"], end["at"])}}


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_batch_that_spark_replays_is_skipped_and_leaves_no_hole(stage: Stage) -> None:
    batches = Batches(stage)
    for batch_id in (0, 0, 1):
        batches.run(batch_id)
    assert [outcome.is_skipped for outcome in batches.outcomes] == [False, True, False]
    stage.check(batches=2)


def test_a_batch_is_ordered_and_replayed_as_the_head_before_it_says(stage: Stage) -> None:
    """So a batch that was begun before an upgrade ends as it began, whichever version ends it."""
    batches = Batches(stage, order=ARRIVAL)
    heads = []
    for batch_id in (0, 0, 1, 1, 2):
        batches.run(batch_id)
        heads.append(batches.runner.head)
    batches.keeps_order = False
    for batch_id in (2, 3, 3):
        batches.run(batch_id)
        heads.append(batches.runner.head)

    assert [outcome.is_skipped for outcome in batches.outcomes] == [
        *(False, True, False, True, False),
        *(True, False, True),
    ]
    used = [head.order for head in heads]
    assert used == [SORTED, SORTED, ARRIVAL, ARRIVAL, ARRIVAL, ARRIVAL, SORTED, SORTED]
    assert {head.next_order for head in heads} == {ARRIVAL}
    digests = {head.batch.batch_id: head.digest for head in heads}
    assert digests[0] == digests[3] != digests[1] == digests[2]
    stage.check(batches=4)


def test_records_carry_the_clock_of_their_batch(stage: Stage) -> None:
    """Else a batch that is computed again would not be the same records."""
    Batches(stage).run(0)
    assert set(stage.world.timestamps_ms(stage.name)) == {CLOCK_MS}


def test_nothing_is_written_to_a_topic_that_is_not_the_recorded_one(stage: Stage) -> None:
    def replaced(_: SinkState) -> None:
        raise CorruptionError("another topic, on purpose")

    batches = Batches(stage)
    batches.run(0)
    batches.check_output = replaced
    with pytest.raises(CorruptionError, match="on purpose"):
        batches.run(1)
    stage.check(batches=1)


@pytest.mark.parametrize("skipped", [-1, 1])
def test_a_batch_that_does_not_begin_where_the_last_one_ended_halts(
    stage: Stage, skipped: int
) -> None:
    batches = Batches(stage)
    batches.run(0)
    with pytest.raises(CorruptionError, match="contradict"):
        batches.run(1, skipped=skipped)
    stage.check(batches=1)


def test_spark_hears_of_the_end_of_a_batch_after_kafka(stage: Stage) -> None:
    has_returned, order = Event(), list[str]()

    def hold() -> None:
        order.append("returned" if has_returned.wait(PAUSE_S) else "committing")

    batches = Batches(stage)
    batches.faults.before_commit = hold
    batches.run(0)
    has_returned.set()
    stage.check(batches=1)
    assert order == ["committing"]


def test_an_error_of_a_batch_reaches_spark(stage: Stage) -> None:
    """Else Spark would log the batch as done."""
    batches = Batches(stage)
    batches.faults.refuses_records = MAX_ATTEMPTS
    with pytest.raises(OnceflowError, match="on purpose"):
        batches.run(0)
    assert batches.runner.failure is not None
    stage.check(batches=0)


def test_a_drain_waits_for_the_running_batch(stage: Stage, threads: ThreadPoolExecutor) -> None:
    is_running, may_go_on = Event(), Event()

    def hold() -> None:
        is_running.set()
        may_go_on.wait(END_S)

    batches = Batches(stage)
    running = threads.submit(batches.run, 0, Frame(hold))
    assert is_running.wait(END_S)
    try:
        assert not batches.runner.gate.close(PAUSE_S)
    finally:
        may_go_on.set()
    assert batches.runner.gate.close(END_S)
    running.result(END_S)
    stage.check(batches=1)


def test_no_batch_begins_after_a_drain(stage: Stage) -> None:
    batches = Batches(stage)
    batches.run(0)
    assert batches.runner.gate.close(END_S)
    with pytest.raises(DrainRequestedError):
        batches.run(1)
    stage.check(batches=1)


def _partitions(keys: Sequence[bytes | None]) -> list[int]:
    return [zlib.crc32(key or b"") % PARTITIONS for key in keys]


def _position(like: Position | None, wanted: TopicRanges) -> Position:
    raise NotImplementedError("only repairs ask for it")

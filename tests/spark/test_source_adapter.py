"""Any source of the contract, found by its entry point, runs under Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from psutil import Process
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec, Split
from onceflow.errors import LineageError
from onceflow.runtime.source.data_source import (
    IDLE_WAIT_S,
    SMALL_BATCH_OFFSETS,
    SourceHandle,
    SourceReader,
    open_stream,
)
from onceflow.runtime.spark.errors import from_text
from onceflow.runtime.spark.launch import PLANNERS
from tests.support.clock import ManualClock
from tests.support.fakes import log_connector
from tests.support.fakes.log_source import LogBlock, LogOrigin, open_log
from tests.support.processes import command_of

SECRET = "correct-horse"  # not one of anybody's


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[LogOrigin]:
    with open_log(tmp_path) as origin:
        yield origin


def handle(origin: LogOrigin, name: str = "log", **options: Any) -> SourceHandle:
    block = LogBlock.model_validate({**origin.block.written, **options})
    spec = SourceSpec(name, "binary", pa.schema([("value", pa.binary())]))
    connection = Connection("nowhere:1", {"password": SECRET})
    return SourceHandle(log_connector.KIND, block, spec, connection)


class Collecting:
    """A sink: keeps the values of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted(bytes(row.value).decode() for row in frame.collect()))


def run(frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]) -> Any:
    """Process what is there, then stop."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.usefixtures("plugin")
def test_a_query_reads_everything_once_and_goes_on_where_it_was(
    spark: SparkSession, origin: LogOrigin, tmp_path: Path
) -> None:
    sink, checkpoint = Collecting(), tmp_path / "checkpoint"
    origin.append(0, [(b"k", b"a%d" % i) for i in range(5)])
    origin.append(1, [(b"k", b"b0")])
    frame = open_stream(spark, handle(origin, max_records_per_batch=2))
    run(frame, checkpoint, sink)
    assert [len(batch) for batch in sink.batches] == [2, 2, 2]
    origin.append(1, [(b"k", b"b1")])
    run(frame, checkpoint, sink)
    assert sorted(chain(*sink.batches)) == ["a0", "a1", "a2", "a3", "a4", "b0", "b1"]


@pytest.mark.usefixtures("plugin")
def test_a_batch_that_failed_is_read_again_as_it_was_logged(
    spark: SparkSession, origin: LogOrigin, tmp_path: Path
) -> None:
    sink, checkpoint = Collecting(), tmp_path / "checkpoint"
    origin.append(0, [(b"k", b"first")])

    def fail(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("as planned")

    frame = open_stream(spark, handle(origin))
    with pytest.raises(StreamingQueryException, match="as planned"):
        run(frame, checkpoint, fail)
    origin.append(0, [(b"k", b"second")])
    run(frame, checkpoint, sink)
    assert sink.batches == [["first"], ["second"]]


@pytest.mark.usefixtures("plugin")
def test_what_plans_a_source_is_forked(
    spark: SparkSession, origin: LogOrigin, tmp_path: Path
) -> None:
    """Or each start of a pipeline would import Spark's Python again, unnoticed."""
    origin.append(0, [(b"k", b"x")])
    forked: list[Process] = []

    def look(frame: DataFrame, batch_id: int) -> None:
        family = Process().children(recursive=True)
        every = [each for each in family if PLANNERS in command_of(each)]
        forked.extend(each for each in every if each.parent() in every)

    run(open_stream(spark, handle(origin)), tmp_path / "checkpoint", look)
    assert forked


@pytest.mark.usefixtures("plugin")
def test_the_offset_log_names_the_source_and_shows_no_secret(
    spark: SparkSession, origin: LogOrigin, tmp_path: Path
) -> None:
    origin.append(0, [(b"k", b"x")])
    frame = open_stream(spark, handle(origin, name="left"))
    query = run(frame, tmp_path / "checkpoint", Collecting())
    logged = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    assert logged["source"] == "left"
    assert logged["position"]["ends"] == {"0": 1, "1": 0}
    progress = query.lastProgress
    shown = progress.json + frame._jdf.queryExecution().toString()
    assert SECRET not in shown


@pytest.mark.usefixtures("plugin")
def test_an_error_of_a_worker_comes_back_as_itself(
    spark: SparkSession, origin: LogOrigin, tmp_path: Path
) -> None:
    origin.append(0, [(b"k", b"x")] * 3)
    origin.delete_before(0, 1)
    frame = open_stream(spark, handle(origin))
    with pytest.raises(StreamingQueryException) as caught:
        run(frame, tmp_path / "checkpoint", Collecting())
    error = from_text(str(caught.value))
    assert error is not None
    assert type(error).__name__ == "CorruptionError"
    assert "records were deleted" in str(error)


@pytest.mark.usefixtures("plugin")
def test_what_both_halves_need_travels_as_options(origin: LogOrigin) -> None:
    sent = handle(origin, max_records_per_batch=7)
    assert SourceHandle.from_options(sent.to_options()) == sent
    assert SECRET in sent.to_options()["connection_secret"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reader(origin: LogOrigin, clock: ManualClock) -> SourceReader:
    return SourceReader(handle(origin, max_records_per_batch=2), clock)


def test_planning_obeys_the_limit_that_spark_hands_in(
    reader: SourceReader, origin: LogOrigin
) -> None:
    start = reader.initialOffset()
    origin.append(0, [(b"k", b"x")] * 5)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    assert reader.latestOffset(start, limit)["position"]["ends"]["0"] == 2
    assert reader.latestOffset(start, ReadAllAvailable())["position"]["ends"]["0"] == 5


def test_planning_waits_a_bounded_time_for_something_new(
    reader: SourceReader, clock: ManualClock
) -> None:
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    before_s = clock.monotonic_s()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert clock.monotonic_s() - before_s == pytest.approx(IDLE_WAIT_S)


def test_planning_does_not_wait_for_what_may_not_come(
    reader: SourceReader, clock: ManualClock
) -> None:
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert clock.monotonic_s() == 0


def test_the_position_of_another_source_is_refused(origin: LogOrigin, clock: ManualClock) -> None:
    left = SourceReader(handle(origin, name="left"), clock)
    right = SourceReader(handle(origin, name="right"), clock)
    offset = left.initialOffset()
    for use in (
        lambda: right.latestOffset(offset, ReadAllAvailable()),
        lambda: right.partitions(offset, offset),
        lambda: right.commit(offset),
    ):
        with pytest.raises(LineageError, match="source left"):
            use()


def test_a_small_batch_is_one_task_and_a_large_one_a_task_per_split(
    reader: SourceReader, origin: LogOrigin
) -> None:
    start = reader.initialOffset()
    for partition in (0, 1):
        origin.append(partition, [(b"k", b"x")] * (SMALL_BATCH_OFFSETS // 2))
    small = reader.latestOffset(start, ReadAllAvailable())
    assert [len(task.value) for task in reader.partitions(start, small)] == [2]
    origin.append(0, [(b"k", b"x")])
    large = reader.latestOffset(start, ReadAllAvailable())
    assert [len(task.value) for task in reader.partitions(start, large)] == [1, 1]
    assert reader.partitions(large, large) == []


def test_splits_travel_as_partitions(reader: SourceReader, origin: LogOrigin) -> None:
    start = reader.initialOffset()
    origin.append(1, [(b"k", b"x")])
    (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert [type(split) for split in partition.value] == [Split]
    (batch,) = reader.read(partition)
    assert batch.column("value").to_pylist() == [b"x"]

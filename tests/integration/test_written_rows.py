"""Compares the records that the JVM writes with those that Python makes of the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.protocol.digest import digest_of
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import SinkState
from onceflow.protocol.order import ARRIVAL, SORTED, Order, Term, Ties
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.records.output import OutputFormat, collect, to_record_columns
from onceflow.runtime.records.rows import (
    KEY_COLUMN,
    PARTITION_COLUMN,
    VALUE_COLUMN,
    number_records,
    sort_batch,
)
from onceflow.runtime.records.writing import (
    Numbering,
    PartitionDigest,
    batch_rows,
    partition_column,
)
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.partitioners import partitions_of
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic

PARTITIONS = 5
NEXT = [1, 8, 3, 2**40, 1]
DDL = "k STRING, n BIGINT, d DOUBLE, t STRING, s STRUCT<x: INT>, at TIMESTAMP, b BINARY"
COLUMNS = ("k", "n", "d", "t", "s", "at")
HEAD = [OutputRecord(0, b"head", b"{}")]
ORDERS = {
    "content": SORTED,
    "arrival": ARRIVAL,
    "terms": Order((Term("d", is_descending=True), Term("s.x"), Term("t")), Ties.CONTENT),
    "terms, then arrival": Order((Term("t", is_descending=True), Term("d")), Ties.ARRIVAL),
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return engine().open_session("")


@pytest.fixture
def out(broker: RunningBroker, topic: Callable[[str], str]) -> str:
    name = topic("o")
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    create_topic(broker.bootstrap_servers, f"{name}-heads", 1)
    return name


@pytest.fixture
def lanes(broker: RunningBroker, out: str) -> Iterator[Callable[[], KafkaIncarnation]]:
    """Initialises the lane of a test, and begins its transaction."""
    with ExitStack() as stack:

        def begun() -> KafkaIncarnation:
            lane = KafkaIncarnation(out, Connection(broker.bootstrap_servers, {}), is_shared=True)
            stack.callback(lane.discard)
            lane.initialise(SystemClock().within(30))
            lane.begin()
            return lane

        yield begun


def rows(random: Random, count: int = 300) -> Sequence[tuple[Any, ...]]:
    """Values that are hard to order or to write, and many that are equal."""
    numbers = (None, 0.0, -0.0, float("nan"), 1e300, -1.5)
    texts = (None, "", "a", "ab", "é", "\U0001f600", '"\\\n\x01', "\u2028")
    return [
        (
            random.choice("abcdefgh"),
            random.randrange(-3, 3),
            random.choice(numbers),
            random.choice(texts),
            random.choice([None, (None,), (1,), (-1,)]),
            None,
            random.choice([None, b"", b"\x00\xff"]),
        )
        for _ in range(count)
    ]


def encoded(frame: DataFrame, output: OutputFormat, order: Order, partitioner: str) -> DataFrame:
    columns = to_record_columns(frame, output, [order])
    if output.partition:
        return columns
    over = F.col(KEY_COLUMN if output.key else VALUE_COLUMN)
    place = partition_column(frame.sparkSession, partitioner, over, PARTITIONS)
    return columns.withColumn(PARTITION_COLUMN, place)


def format_of(name: str, **options: Any) -> OutputFormat:
    usual: dict[str, Any] = {"key": "k", "partition": None, "payload_columns": lambda _: COLUMNS}
    return OutputFormat(name, **{**usual, **options})


FORMATS = {
    "json": (format_of("json"), "crc32"),
    "csv": (format_of("csv", payload_columns=lambda _: ("k", "n", "d", "t")), "murmur2"),
    "text": (format_of("text", payload_columns=lambda _: ("t",)), "murmur2"),
    "keyless": (format_of("json", key=None), "crc32"),
    "keyless murmur2": (format_of("json", key=None), "murmur2"),
    "chosen": (format_of("json", partition="place"), ""),
}


def numbering_of(out: str) -> Numbering:
    headers = HeaderPacker(
        pipeline_tag=2**32 - 1, generation=3, plan_tag=7, batch_id=41, mode=8, lineage=9
    )
    return Numbering(out, NEXT, headers, SystemClock().unix_ms())


def expected_records(
    frame: DataFrame, order: Order, numbering: Numbering, partitioner: str
) -> Sequence[OutputRecord]:
    """As Python makes them today."""
    before = SinkState(
        numbering.topic,
        PARTITIONS,
        Layout(1, 1),
        {partition: (1, first - 1) for partition, first in enumerate(NEXT) if first > 1},
    )
    columns = [name for name in frame.columns if not (partitioner and name == PARTITION_COLUMN)]
    table = collect(frame.select(*(f"`{name}`" for name in columns)), 2**28)
    batch = sort_batch(
        table, PARTITIONS, lambda keys: partitions_of(partitioner, keys, PARTITIONS), order
    )
    return number_records(batch, before, numbering.headers, numbering.timestamp_ms)


def expected_reports(records: Sequence[OutputRecord]) -> Mapping[int, PartitionDigest]:
    found = defaultdict[int, list[OutputRecord]](list)
    for each in records:
        found[each.partition].append(each)
    return {
        partition: PartitionDigest(
            len(own),
            NEXT[partition] + len(own) - 1,
            digest_of((partition, each.key, each.value) for each in own),
        )
        for partition, own in found.items()
    }


def commit(lane: KafkaIncarnation, out: str) -> None:
    deadline = SystemClock().within(30)
    lane.send(f"{out}-heads", HEAD, deadline)
    lane.commit(deadline)


def client(broker: RunningBroker) -> Mapping[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": "10"}


def written(broker: RunningBroker, out: str) -> Sequence[OutputRecord]:
    return [
        OutputRecord(w.partition, w.key, w.value, w.header, w.timestamp_ms)
        for w in read_topic(broker.bootstrap_servers, out)
    ]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("writers", [0, 1, 2, 7])
@pytest.mark.parametrize("kind", FORMATS)
def test_records_are_those_of_python(  # noqa: PLR0917
    spark: SparkSession,
    broker: RunningBroker,
    out: str,
    lanes: Callable[[], KafkaIncarnation],
    random: Random,
    kind: str,
    writers: int,
) -> None:
    """Value, key, header, partition and order: all that a reader sees, and the digests."""
    order = random.choice([*ORDERS.values()])
    output, partitioner = FORMATS[kind]
    frame = spark.createDataFrame(rows(random), DDL).repartition(3).cache()
    frame = frame.withColumn("place", F.pmod(F.hash("n", "t"), F.lit(PARTITIONS)))
    frame = encoded(frame, output, order, partitioner)
    numbering = numbering_of(out)
    expected = expected_records(frame, order, numbering, partitioner)
    lane = lanes()
    with batch_rows(frame, order, writers) as batch:
        assert batch.compare(numbering) == expected_reports(expected)
        reports = batch.write(numbering, lane.transaction(), client(broker))
    commit(lane, out)
    assert reports == expected_reports(expected)
    assert written(broker, out) == expected


@pytest.mark.parametrize("writers", [0, 2])
def test_rows_are_written_again_without_the_query(
    spark: SparkSession,
    broker: RunningBroker,
    out: str,
    lanes: Callable[[], KafkaIncarnation],
    random: Random,
    writers: int,
) -> None:
    """After a zombie's epoch was refused, into a fresh transaction: what the query counts stays."""
    counted: Any = spark.sparkContext.accumulator(0)

    frame = spark.createDataFrame(rows(random), DDL).repartition(3)
    frame = frame.withColumn("n", F.udf(lambda value: (counted.add(1), value)[1], "bigint")("n"))
    output, partitioner = FORMATS["json"]
    frame = encoded(frame, output, SORTED, partitioner)
    numbering, fenced, lane = numbering_of(out), lanes().transaction(), lanes()
    with batch_rows(frame, SORTED, writers) as batch:
        with pytest.raises(Py4JJavaError, match=r"RefusedException: \w+(Fenced|Epoch)Exception"):
            batch.write(numbering, fenced, client(broker))
        before = counted.value
        reports = batch.write(numbering, lane.transaction(), client(broker))
        commit(lane, out)
        assert counted.value == before > 0
    assert sum(each.count for each in reports.values()) == 300
    expected = expected_records(frame, SORTED, numbering, partitioner)
    assert written(broker, out) == expected


def test_what_was_shuffled_is_removed(spark: SparkSession, out: str, random: Random) -> None:
    frame = spark.createDataFrame(rows(random), DDL).repartition(3)
    frame = encoded(frame, *FORMATS["json"][:1], SORTED, "crc32")
    jvm: Any = jvm_of(spark)
    tracker = jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()
    before = tracker.shuffleStatuses().size()
    with batch_rows(frame, SORTED, 2) as batch:
        batch.compare(numbering_of(out))
        assert tracker.shuffleStatuses().size() > before
    eventually(lambda: tracker.shuffleStatuses().size() <= before)


@pytest.mark.parametrize("place", [None, -1, PARTITIONS])
@pytest.mark.parametrize("writers", [0, 2])
def test_a_partition_that_does_not_exist(
    spark: SparkSession, out: str, random: Random, place: int | None, writers: int
) -> None:
    frame = spark.createDataFrame(rows(random), DDL).withColumn("place", F.lit(place).cast("int"))
    frame = encoded(frame, FORMATS["chosen"][0], SORTED, "")
    with batch_rows(frame, SORTED, writers) as batch, pytest.raises(Py4JJavaError, match="chose"):
        batch.compare(numbering_of(out))

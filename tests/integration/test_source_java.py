"""The source in Spark's JVM reads what a client in Python reads, and fails in the same words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Semaphore
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, SourceSpec, Split
from onceflow.errors import ConfigError, DeadlineError, OnceflowError, RecordError
from onceflow.runtime.source import data_source, jvm, opening
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.spark.errors import translated_errors
from onceflow_connectors.kafka.source import position
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine, run_here
from tests.support.eventually import eventually
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import create_topic, find_topic, ordered_producer
from tests.support.reading import frame_by_java, read_by_python

LOOKS = 20
"""50 ms apart and more: one that does not rest has an answer each 20 ms."""
JSON = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
BYTES = pa.schema([("bytes", pa.binary())])
RECORDS: Sequence[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]] = [
    (
        b"k",
        b'{"id": 1, "name": "a", "tags": ["x", null]}',
        [("one", b"1"), ("one", b""), ("n", None)],
    ),
    (None, b'{"id": 2}', []),
    (b"", b'{"id": "x"}', [("\u00e9", b"\xff")]),
    (b"k", None, []),
    (b"k", b"\xff", []),
    (b"k", b'{"id": 3, "name": "a\\nb", "id": 4}', []),
    (b"k", b"", []),
    (b"k", b'{"id": 5, "tags": []}', []),
]


@pytest.fixture
def spark() -> SparkSession:
    return engine().open_session("")


@pytest.fixture
def name(broker: RunningBroker, topic: Callable[[str], str]) -> str:
    """A topic with two partitions."""
    made = topic("java")
    # Its records are old.
    create_topic(broker.bootstrap_servers, made, 2, {"retention.ms": "-1"})
    return made


def fill(broker: RunningBroker, name: str, partition: int = 0, times: int = 1) -> None:
    producer = ordered_producer(broker.bootstrap_servers)
    for _ in range(times):
        for key, value, headers in RECORDS:
            producer.produce(
                name, value, key, partition, headers=headers, timestamp=1_700_000_000_123
            )
    assert producer.flush(30) == 0


def handle(
    broker: RunningBroker, name: str, schema: pa.Schema, kind: str = "json", **block: Any
) -> SourceHandle:
    source = KafkaSource.model_validate({"topics": [name], **block})
    return SourceHandle(
        "kafka", source, SourceSpec("s", kind, schema), Connection(broker.bootstrap_servers)
    )


def everything(schema: pa.Schema) -> pa.Schema:
    fields = [*schema, *(pa.field(*each) for each in META_COLUMNS.items())]
    return pa.schema([*fields, pa.field(REJECT_COLUMN, pa.string())])


def read_by_java(spark: SparkSession, handle: SourceHandle, splits: Sequence[Split]) -> pa.Table:
    with translated_errors(2**30):
        return frame_by_java(spark, handle, splits).toArrow()


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("json", JSON),
        ("json", pa.schema([])),
        ("text", pa.schema([("text", pa.string())])),
        ("binary", BYTES),
    ],
)
def test_both_read_the_same_rows(
    kind: str, schema: pa.Schema, spark: SparkSession, broker: RunningBroker, name: str
) -> None:
    """Keys, headers, times, reasons and nulls of every record."""
    fill(broker, name, times=1000)
    of_all = handle(broker, name, everything(schema), kind)
    splits = [Split(name, 0, 3, 8 * 1000 - 2)]
    found = read_by_java(spark, of_all, splits)
    assert found.num_rows == 8 * 1000 - 5
    assert found.to_pylist() == read_by_python(of_all, splits).to_pylist()


def test_a_bad_record_is_told_in_the_same_words(
    spark: SparkSession, broker: RunningBroker, name: str
) -> None:
    fill(broker, name)
    splits, source = [Split(name, 0, 1, 8)], handle(broker, name, JSON)
    with pytest.raises(RecordError) as by_java:
        read_by_java(spark, source, splits)
    with pytest.raises(RecordError) as by_python:
        read_by_python(source, splits)
    assert str(by_java.value) == str(by_python.value)
    assert f"offset 2 of {name}-0" in str(by_java.value)


def test_a_consumer_rests_when_no_task_reads(
    spark: SparkSession, broker: RunningBroker, name: str
) -> None:
    """It asks brokers for nothing then, and reads on when a task comes."""
    fill(broker, name)
    shared = handle(broker, name, BYTES, "binary")
    # A consumer of its own: a task of an earlier test may still run, and hold others.
    properties = {"fetch.message.max.bytes": "999999"}
    source = replace(shared, connection=replace(shared.connection, properties=properties))
    read_by_java(spark, source, [Split(name, 0, 0, 8)])
    seen: deque[int] = deque(maxlen=LOOKS)

    def latest() -> list[int]:
        seen.append(fetches(spark, name))
        return list(seen)

    eventually(latest, lambda counts: counts == counts[:1] * LOOKS)
    fill(broker, name)
    assert read_by_java(spark, source, [Split(name, 0, 8, 16)]).num_rows == 8
    assert fetches(spark, name) > seen[0]


def test_a_range_that_the_log_does_not_have_ends_in_time(
    spark: SparkSession, broker: RunningBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, name)
    monkeypatch.setattr(jvm, "STALL_TIMEOUT_S", 1.0)
    with pytest.raises(
        DeadlineError, match=f"offset 8 of {name}-0; .* found a last stable offset of 8"
    ):
        read_by_java(spark, handle(broker, name, BYTES, "binary"), [Split(name, 0, 0, 9)])


class Collecting:
    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.toArrow().to_pylist()
        self.batches.append(sorted((row["_partition"], row["_offset"]) for row in rows))


def run(frame: DataFrame, checkpoint: Path) -> list[list[tuple[int, int]]]:
    """Process what is there; what each batch read."""
    sink = Collecting()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    with translated_errors(2**30):
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
    return sink.batches


PLACES = pa.schema([(name, META_COLUMNS[name]) for name in ("_partition", "_offset")])


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, broker: RunningBroker, name: str, tmp_path: Path
) -> None:
    """By the same frame, and by another; that of an older release: `test_older_release`."""
    source = handle(broker, name, PLACES, max_records_per_batch=6)
    frame = opening.open_stream(spark, source)
    fill(broker, name)
    assert [len(batch) for batch in run(frame, tmp_path)] == [6, 2]
    assert run(frame, tmp_path) == []
    fill(broker, name)
    fill(broker, name, partition=1)
    second = run(frame, tmp_path)
    assert sorted(chain(*second)) == [*((0, n) for n in range(8, 16)), *((1, n) for n in range(8))]
    assert max(map(len, second)) <= 6
    fill(broker, name)
    third = run(opening.open_stream(spark, source), tmp_path)
    assert sorted(chain(*third)) == [(0, n) for n in range(16, 24)]


def test_tasks_that_read_parts_of_one_partition_do_not_disturb_one_another(
    spark: SparkSession,
    broker: RunningBroker,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(position, "MAX_SPLIT_OFFSETS", 50)
    monkeypatch.setattr(data_source, "SMALL_BATCH_OFFSETS", 0)
    for _ in range(100):
        fill(broker, name)
    of_all = handle(broker, name, PLACES)
    # Little comes with one fetch, so that tasks wait while others read.
    small = replace(of_all.connection, properties={"fetch.message.max.bytes": "1000"})
    (read,) = run(opening.open_stream(spark, replace(of_all, connection=small)), tmp_path)
    assert read == [(0, n) for n in range(800)]


def test_what_the_planner_refuses_has_its_words(
    spark: SparkSession,
    broker: RunningBroker,
    tmp_path: Path,
) -> None:
    source = handle(broker, "no-such-topic", PLACES)
    frame = opening.open_stream(spark, source)
    with pytest.raises(OnceflowError) as refused:
        run(frame, tmp_path)
    assert type(refused.value) is ConfigError
    assert str(refused.value) == (
        "a source topic does not exist: no-such-topic; create it, or correct the name"
    )


def test_a_consumer_and_its_place_last_from_batch_to_batch(
    spark: SparkSession, broker: RunningBroker, name: str
) -> None:
    """The threads of consumers are no more after many reads than after one."""
    fill(broker, name)
    source = handle(broker, name, PLACES)
    read_by_java(spark, source, [Split(name, 0, 0, 4)])
    before = fetchers(spark)
    for _ in range(5):
        read_by_java(spark, source, [Split(name, 0, 4, 8)])
    # Those of earlier tests end a minute after their last task.
    assert fetchers(spark) <= before


def fetchers(spark: SparkSession) -> int:
    gateway: Any = spark.sparkContext._gateway  # no public way
    threads = gateway.jvm.java.lang.Thread.getAllStackTraces().keySet()
    return sum(each.getName() == "onceflow-fetcher" for each in threads)


class InTurn(Collecting):
    """Reads each batch when the other has read one."""

    def __init__(self, mine: Semaphore, others: Semaphore) -> None:
        super().__init__()
        self.mine, self.others = mine, others

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        assert self.mine.acquire(timeout=60)
        super().__call__(frame, batch_id)
        self.others.release()


def test_streams_that_read_one_topic_do_not_move_each_other(
    spark: SparkSession, broker: RunningBroker, name: str, tmp_path: Path
) -> None:
    """Each record is fetched once for each of them: nothing that waits is lost."""
    fill(broker, name, times=3)
    first, second = Semaphore(1), Semaphore(0)
    sinks = [InTurn(first, second), InTurn(second, first)]
    queries = []
    for number, sink in enumerate(sinks):
        frame = opening.open_stream(spark, handle(broker, name, PLACES, max_records_per_batch=4))
        writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
        queries.append(writer.option("checkpointLocation", str(tmp_path / str(number))).start())
    assert all(query.awaitTermination(60) for query in queries)
    for sink in sinks:
        assert sink.batches == [[(0, n) for n in range(at, at + 4)] for at in range(0, 24, 4)]
    assert fetched(spark, name) == 2 * 24


def fetched(spark: SparkSession, topic: str) -> int:
    """Records that the consumers in Spark's JVM have fetched of a topic."""
    return sum(
        int(each.metricValue())
        for metrics in metrics_of_consumers(spark, topic)
        for each in metrics
        if each.metricName().name() == "records-consumed-total"
        and each.metricName().tags().get("topic") == topic
    )


def fetches(spark: SparkSession, topic: str) -> int:
    """Answers to fetches that the consumers have had which have read the topic."""
    return sum(
        int(each.metricValue())
        for metrics in metrics_of_consumers(spark, topic)
        for each in metrics
        if each.metricName().name() == "fetch-total" and not each.metricName().tags().get("topic")
    )


def metrics_of_consumers(spark: SparkSession, topic: str) -> list[list[Any]]:
    """All metrics of each consumer that has read the topic."""
    gateway: Any = spark.sparkContext._gateway  # no public way
    known = gateway.jvm.java.lang.Class.forName("onceflow.source.Fetcher")
    pool, consumer = (known.getDeclaredField(each) for each in ("POOL", "consumer"))
    pool.setAccessible(True)
    consumer.setAccessible(True)
    of_all = [list(consumer.get(one).metrics().values()) for one in pool.get(None)]
    return [
        metrics
        for metrics in of_all
        if topic in [each.metricName().tags().get("topic") for each in metrics]
    ]


def test_a_plan_is_known_by_name_only_while_its_frame_is_made(
    spark: SparkSession, broker: RunningBroker, name: str, tmp_path: Path
) -> None:
    """Pipelines may start again and again in one process; a frame is started twice."""
    fill(broker, name)
    frame = opening.open_stream(spark, handle(broker, name, PLACES))
    gateway: Any = spark.sparkContext._gateway  # no public way
    known = gateway.jvm.java.lang.Class.forName("onceflow.source.Plans").getDeclaredField("PLANS")
    known.setAccessible(True)
    assert known.get(None).size() == 0
    for folder in ("one", "two"):
        assert run(frame, tmp_path / folder) == [[(0, n) for n in range(8)]]


def test_a_setting_that_java_does_not_have_is_refused_before_the_claim(job: ViewsJob) -> None:
    connection = Connection(job.bootstrap_servers, {"ssl.engine.location": "/engine.so"})
    with pytest.raises(ConfigError, match=r"ssl\.engine\.location"):
        run_here(job.write_file(), connection)
    assert find_topic(job.bootstrap_servers, f"onceflow.ledger.{job.name}") is None

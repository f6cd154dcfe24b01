"""Spark's JVM reads from three brokers, of which one is lost, or all are silent."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import META_COLUMNS, SourceSpec, Split
from onceflow.errors import DeadlineError
from onceflow.runtime.source import jvm
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.source.opening import open_stream
from onceflow.runtime.spark.errors import translated_errors
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.brokers.cluster import FaultyBroker, FaultyCluster, leader_of
from tests.support.drivers.here import engine
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic, ordered_producer

pytestmark = pytest.mark.crash

OFFSETS = pa.schema([("_offset", META_COLUMNS["_offset"])])
RECORDS = 100
TIMEOUT_S = 120.0
"""A frozen broker is given up after 30 s without an answer."""


@pytest.fixture
def spark() -> SparkSession:
    return engine().open_session("")


@pytest.fixture
def name(cluster: FaultyCluster, topic: Callable[[str], str]) -> str:
    made = topic("read")
    create_topic(cluster.bootstrap_servers, made, 1)
    return made


def fill(cluster: FaultyCluster, name: str) -> None:
    producer = ordered_producer(cluster.bootstrap_servers)
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(60) == 0


def handle(cluster: FaultyCluster, name: str) -> SourceHandle:
    block = KafkaSource.model_validate({"topics": [name]})
    spec = SourceSpec("s", "binary", OFFSETS)
    return SourceHandle("kafka", block, spec, Connection(cluster.bootstrap_servers))


@pytest.mark.parametrize("lose", [FaultyBroker.kill, FaultyBroker.freeze])
def test_reading_goes_on_at_another_broker(
    lose: Callable[[FaultyBroker], None],
    spark: SparkSession,
    cluster: FaultyCluster,
    name: str,
    tmp_path: str,
) -> None:
    """The next leader alone has the records that are produced after the loss."""
    found: list[int] = []

    def collect(frame: DataFrame, _: int) -> None:
        found.extend(frame.toArrow()["_offset"].to_pylist())

    fill(cluster, name)
    frame = open_stream(spark, handle(cluster, name))
    query = frame.writeStream.foreachBatch(collect).option("checkpointLocation", f"{tmp_path}/c")
    running = query.start()
    try:
        eventually(lambda: len(found) == RECORDS, timeout_s=TIMEOUT_S)
        lose(leader_of(cluster, name, 0))
        fill(cluster, name)
        eventually(lambda: len(found) == 2 * RECORDS, timeout_s=TIMEOUT_S)
    finally:
        running.stop()
    assert found == [*range(2 * RECORDS)]


def test_brokers_that_are_silent_are_named_when_the_time_is_over(
    spark: SparkSession, cluster: FaultyCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "STALL_TIMEOUT_S", 8.0)
    fill(cluster, name)
    source = handle(cluster, name)
    client = source.block.java_client(source.connection)
    assert client is not None

    def read(start: int, end: int) -> None:
        tasks = [InputPartition((Split(name, 0, start, end),))]
        with translated_errors(2**30):
            assert jvm.open_tasks(spark, source, client, tasks).toArrow().num_rows == end - start

    read(0, 4)
    for broker in cluster.brokers:
        broker.freeze()
    with pytest.raises(DeadlineError) as silent:
        read(4, RECORDS + 1)
    assert str(silent.value) == (
        f"reading makes no progress: offset {RECORDS} of {name}-0; expected all offsets before"
        f" {RECORDS + 1} within 8 s; found no answer to fetches from {cluster.bootstrap_servers};"
        " the task fails and is tried again"
    )

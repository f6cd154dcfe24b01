"""The Kafka source keeps every promise of the contract, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Reader, SourceSpec, Split
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.runtime.source.jvm import open_tasks
from onceflow.runtime.spark.errors import translated_errors
from onceflow.testing.sources import (
    CompactionPromises,
    GrowthPromises,
    IdentityPromises,
    RetentionPromises,
    SourceContract,
    SourceUnderTest,
    TransactionPromises,
)
from onceflow_connectors.kafka.source.consumers import close_idle_readers
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_origin import KafkaOrigin
from tests.support.drivers.here import engine


class TestKafkaSource(
    SourceContract,
    TransactionPromises,
    CompactionPromises,
    RetentionPromises,
    IdentityPromises,
    GrowthPromises,
):
    @pytest.fixture
    def connection(self, broker: RunningBroker) -> Connection:
        return Connection(broker.bootstrap_servers)

    @pytest.fixture
    def origin(self, broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[KafkaOrigin]:
        origin = KafkaOrigin(broker.bootstrap_servers, topic("origin"))
        origin.create()
        yield origin
        close_idle_readers()


@dataclass(frozen=True)
class JavaReader:
    """Reads in Spark's JVM."""

    handle: SourceHandle
    spark: SparkSession

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        client = self.handle.block.java_client(self.handle.connection)
        assert client is not None
        tasks = [InputPartition(tuple(splits))]
        with translated_errors(2**30):
            table = open_tasks(self.spark, self.handle, client, tasks).toArrow()
        yield from table.to_batches()


@dataclass(frozen=True)
class JavaUnderTest(SourceUnderTest):
    """A source of which Java reads what Python plans."""

    spark: SparkSession = field(kw_only=True)

    def reader(self) -> Reader:
        return JavaReader(SourceHandle("kafka", self.block, self.spec, self.connection), self.spark)


class TestKafkaSourceInJava(TestKafkaSource):
    @pytest.fixture
    def source(
        self, origin: KafkaOrigin, connection: Connection, spec: SourceSpec
    ) -> SourceUnderTest:
        return JavaUnderTest(origin.block, connection, spec, spark=engine().open_session(""))

    # A reader dies with its executor only: `tests/faults/test_executors.py`.
    test_killed_reader = None  # type: ignore[assignment]

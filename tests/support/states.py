"""Queries with state over numbers, without a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.pipeline.plan.plan import jvm_of

WAIT_S = 60.0
BATCHES = 5
LAST = BATCHES - 1
SNAPSHOT = 2
"""The batch whose state is uploaded as a whole if snapshots are asked for."""


def numbers(spark: SparkSession, rows: int = 40) -> DataFrame:
    """A stream of numbers, the same however often it is read; ten seconds from batch to batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    found = source.option("advanceMillisPerBatch", 10_000).option("numPartitions", 2).load()
    named = found.select(
        F.col("timestamp").alias("at"), "value", (F.col("value") % 7).cast("string").alias("page")
    )
    return named.withWatermark("at", "20 seconds")


def windows(spark: SparkSession) -> DataFrame:
    by = numbers(spark).groupBy(F.window("at", "10 seconds"), "page")
    return by.agg(F.count("*").alias("n"), F.sum("value").alias("sum"))


@dataclass
class Pauses:
    """Takes the batches of a query, and holds the last one until it may go on."""

    has_snapshots: bool
    """Whether the state is uploaded as a whole after the batch `SNAPSHOT`."""
    is_reached: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.count()
        if batch == SNAPSHOT + 1 and self.has_snapshots:
            upload_snapshots(rows.sparkSession)
        if batch == BATCHES:
            self.is_reached.set()
            assert self.may_go_on.wait(WAIT_S)


def upload_snapshots(session: SparkSession) -> None:
    """Have the stores of this process do at once what they do once a minute."""
    # No public way: Spark has no call that does only this.
    kind = "org.apache.spark.sql.execution.streaming.state.StateStore$"
    stores = jvm_of(session).java.lang.Class.forName(kind).getDeclaredField("loadedProviders")
    stores.setAccessible(True)
    found = stores.get(None).values().iterator()
    while found.hasNext():
        found.next().doMaintenance()


@contextmanager
def running(
    result: DataFrame, checkpoint: Path, partitions: int = 2, *, has_snapshots: bool = False
) -> Iterator[None]:
    """The query is in its last batch, after `BATCHES` that are done."""
    session = result.sparkSession
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    # A snapshot would do for a changelog that a test damages, and an earlier test of this process
    # may have set Spark to look for some twice a second.
    deltas = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    session.conf.set(deltas, str(SNAPSHOT + 1) if has_snapshots else "1000000")
    pauses = Pauses(has_snapshots)
    writer = result.writeStream.foreachBatch(pauses).outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        assert pauses.is_reached.wait(WAIT_S), query.exception()
        yield
    finally:
        pauses.may_go_on.set()
        query.stop()
        session.conf.unset(deltas)
        session.conf.set("spark.sql.shuffle.partitions", "2")

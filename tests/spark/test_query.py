"""The running query keeps to what it was started with."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, SparkSession

from onceflow.runtime.batch.batch import BatchRunner
from onceflow.runtime.batch.executed import ExecutionReader
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.query.query import QueryHandle, start_query
from tests.support.eventually import eventually

TRIGGER_MS = 700
BATCHES = 4
TIMEOUT_S = 60.0


def test_batches_begin_no_sooner_than_the_trigger_says(spark: SparkSession, tmp_path: Path) -> None:
    """Spark begins them at whole intervals, so no two are in one; only the first waits for none."""

    def take(batch: DataFrame, _: int) -> None:
        batch.count()

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    stream = frame.writeStream.trigger(processingTime=f"{TRIGGER_MS} milliseconds")
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"), "paced", {})
    handle = QueryHandle(ExecutionReader(spark, []))
    query = start_query(stream, checkpoint, cast("BatchRunner", take), handle)
    try:
        eventually(lambda: len(query.recentProgress) >= BATCHES, timeout_s=TIMEOUT_S)
        assert query.exception() is None
    finally:
        query.stop()
    begun = [datetime.fromisoformat(progress.timestamp) for progress in query.recentProgress]
    intervals = [round(at.timestamp() * 1000) // TRIGGER_MS for at in begun[1:]]
    assert len({*intervals}) == len(intervals)

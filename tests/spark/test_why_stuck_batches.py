"""Causes that only Spark's own figures tell, really made: slow storage and large state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.clock import SystemClock
from onceflow.observe.diagnosis import Cause, diagnose
from onceflow.observe.facts import Facts
from onceflow.protocol.bulletin import RUNNING_KIND, Bulletin
from onceflow.runtime.query.progress import figures
from onceflow.serve.bulletins import Bulletins
from tests.support.eventually import eventually
from tests.support.fakes.slow_files import use_slow_files
from tests.unit.serve.test_bulletins import Board
from tests.unit.serve.test_diagnosis import facts

TIMEOUT_S = 120.0
BATCHES = 1
KEYS = 50_000


def rows(spark: SparkSession, per_batch: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch)
    return source.option("numPartitions", 2).load()


def _work(batch: DataFrame, _: int) -> None:
    batch.count()


def told_of(frame: DataFrame, checkpoint: str, memory_budget_bytes: int = 1 << 30) -> Facts:
    """A pipeline that is well but for what its run tells after some batches of this query."""
    writer = frame.writeStream.foreachBatch(_work).outputMode("update")
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        progress: Any = eventually(
            lambda: query.lastProgress or query.exception(),
            lambda seen: getattr(seen, "batchId", -1) >= BATCHES,
            timeout_s=TIMEOUT_S,
        )
    finally:
        query.stop()
    board, clock = Board(), SystemClock()
    run = Bulletins(board, "here", memory_budget_bytes, clock, lambda event, /, **_: None)
    run("owner", run_id="run-3")
    run("progress", **figures(progress))
    bulletin = Bulletin.from_json(dict(board.posted)[RUNNING_KIND])
    assert bulletin.batch_id >= BATCHES
    return facts(at_ms=clock.unix_ms(), bulletin=bulletin, inputs=())


@pytest.fixture
def quick(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def test_slow_checkpoint_storage(spark: SparkSession, tmp_path: Path, quick: str) -> None:
    use_slow_files(spark)
    few = rows(spark, 10)
    (finding,) = [
        found
        for found in diagnose(told_of(few, f"slow://{tmp_path}/slow"))
        if found.cause is Cause.CHECKPOINT_SLOW
    ]
    assert "offset log" in finding.evidence[0]
    assert Cause.CHECKPOINT_SLOW not in {found.cause for found in diagnose(told_of(few, quick))}


def test_state_that_outgrows_the_memory(spark: SparkSession, quick: str) -> None:
    grouped = rows(spark, KEYS).groupBy(F.pmod("value", F.lit(KEYS))).count()
    (finding,) = [
        found
        for found in diagnose(told_of(grouped, quick, memory_budget_bytes=1 << 20))
        if found.cause is Cause.STATE_TOO_LARGE
    ]
    assert "MiB of memory" in finding.evidence[0], "nothing has sampled the rows"
    assert "spark.driver_memory is 1 MiB" in finding.evidence[-1]

"""Makes a process quick at what it will do when it has to: runs the query, and keeps nothing of it.

A JVM is slow at whatever it does first: it loads classes, compiles, opens RocksDB, starts Python
workers. On this project's machines that is half of the time from a claim to the first batch.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from tempfile import TemporaryDirectory

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from onceflow.errors import OnceflowError
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.runtime.query.query import QueryHandle
from onceflow.runtime.records.output import collect
from onceflow.runtime.spark.jvm import UNREACHABLE

BATCHES = 3
"""The third is hardly quicker than the second."""
RECORDS = 500
"""Of each batch, at most."""
TIMEOUT_S = 30.0
"""A quiet input gives no batch; what is warm by then is what could be warmed."""


def with_small_batches(file: PipelineFile) -> PipelineFile:
    """The same pipeline, for a look at its input."""
    pipeline = file.pipeline
    sources = {
        name: source.model_copy(update={"block": source.block.with_limit(RECORDS)})
        for name, source in pipeline.sources.items()
    }
    small = pipeline.model_copy(update={"sources": sources}).located_in(pipeline.folder)
    return replace(file, pipeline=small)


def warm_up(stream: DataStreamWriter, handle: QueryHandle, max_result_bytes: int) -> int:
    """Run a few batches of a query against a checkpoint that is thrown away.

    Reads the input and writes nothing: no output, no ledger, no group offsets.

    Returns:
        How many batches there were. What fails here is told by the run itself, if it lasts.
    """
    done = threading.Event()
    seen: list[int] = []

    def discard(batch: DataFrame, number: int) -> None:
        collect(batch, max_result_bytes)
        handle.read_execution()
        seen.append(number)
        if len(seen) >= BATCHES:
            done.set()

    with TemporaryDirectory(prefix="onceflow-warm-up-") as checkpoint:
        writer = stream.foreachBatch(discard).option("checkpointLocation", checkpoint)
        try:
            query = writer.start()
            handle.set(query)
            done.wait(TIMEOUT_S)
            query.stop()
        except (OnceflowError, PySparkException, *UNREACHABLE):
            return len(seen)
    return len(seen)

"""Writes an archive of `spark_home.py`: `python -m onceflow.runtime.spark.record_classes`.

For the Java that is in use. Compiles our Java sources, too. Takes half a minute. It needs no
broker: Spark runs a small query over numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from onceflow.errors import ConfigError, require
from onceflow.java.choice import Java
from onceflow.java.classes import record_with, recording_options, remove_old
from onceflow.java.compiled import compile_ours
from onceflow.java.loader import new_instance
from onceflow.runtime.spark.home import class_archive, make_spark_home, spark_home
from onceflow.runtime.spark.session import SessionSettings, open_session, spark_conf

_DUMP_TIMEOUT_S = 180.0
"""Writing the archive takes 15 s on two idle cores."""
_QUERY_TIMEOUT_S = 120
_BATCHES = 3
_ROWS = 100
_KEPT = 2
"""One archive for each Java that may be in turn; they have 150 MB each."""


class Numbers(DataSource):
    """A stream of numbers, so that recording needs no broker."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "onceflow-numbers"

    def schema(self) -> str:
        """As Spark's DDL."""
        return "n BIGINT"

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Make the reader of both halves."""
        return NumbersReader()


class NumbersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Some numbers in each batch, and an end."""

    def initialOffset(self) -> dict[str, int]:
        """From the first number on."""
        return {"n": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing is added while the query runs."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many numbers as make a batch."""
        return ReadMaxRows(_ROWS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Up to the last number of the next batch."""
        return {"n": min(start["n"] + _ROWS, _ROWS * _BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One task."""
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The numbers of a batch."""
        yield pa.RecordBatch.from_pydict({"n": [*range(*partition.value)]})


def record(archive: Path) -> None:
    """Run a small query in a JVM of its own and archive the classes that it loaded.

    To be called once in a process that has no JVM yet.

    Raises:
        ConfigError: Spark cannot be started.
        InvariantError: the query or the JVM did not end in time; no archive was written.
    """
    with TemporaryDirectory(dir=archive.parent) as folder:
        unfinished = Path(folder) / archive.name
        options = join(recording_options(unfinished))
        spark = open_session("class-archive", SessionSettings("local[1]"), folder, options)
        _run_query(spark, f"{folder}/checkpoint")
        _read_state(spark, Path(folder, "checkpoint"))
        _end_jvm(spark)
        unfinished.replace(archive)


def _run_query(spark: SparkSession, checkpoint: str) -> None:
    spark.dataSource.register(Numbers)
    counts = (
        spark.readStream.format(Numbers.name())
        .load()
        .withColumn("at", F.timestamp_seconds("n"))
        .withWatermark("at", "1 second")
        .groupBy(F.window("at", "10 seconds"), F.col("n") % 7)
        .agg(F.count("*").alias("rows"), F.sum("n").alias("total"))
        .select(F.to_json(F.struct("*")).cast("binary").alias("value"))
    )
    writer = counts.writeStream.foreachBatch(lambda frame, _: frame.toArrow())
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start()
    is_over = query.awaitTermination(_QUERY_TIMEOUT_S)
    require(bool(is_over), "a query over some numbers ends soon")


def _read_state(spark: SparkSession, checkpoint: Path) -> None:
    """As `onceflow state get` does, in a JVM that runs no query."""
    _, commit = (checkpoint / "commits" / "0").read_text().splitlines()
    unique = json.loads(commit)["stateUniqueIds"]["0"][0][0]
    settings = spark_conf(SessionSettings(), str(checkpoint), "")
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  no public way
    reader = new_instance(jvm, "StateReader")
    reader.open(f"{checkpoint}/state", dict(settings), 0, "default", 0, False, "", "")
    reader.load(0, 1, unique)
    reader.select({}, 0)
    reader.next(_ROWS)
    reader.close()


def _end_jvm(spark: SparkSession) -> None:
    """Let the JVM end by itself, as it writes the archive only then."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  no public way
    spark.stop()
    # PySpark's JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(_DUMP_TIMEOUT_S)


def main(java: Java) -> None:
    """Make the Spark home, our classes, and the archive for one Java."""
    make_spark_home(spark_home())
    try:
        compile_ours(java)
    except (ConfigError, OSError) as error:
        sys.exit(f"onceflow: our Java cannot be compiled, and nothing was recorded: {error}")
    archive = class_archive(java)
    record(archive)
    remove_old(archive, _KEPT)


if __name__ == "__main__":
    record_with(main)

"""The other engine: Spark's own Kafka source and its at-least-once Kafka sink, on the same query.

It gets every setting of onceflow that makes Spark faster: RocksDB with changelogs, as many shuffle
partitions as cores, a checkpoint without forks, the same heap, a schema of the needed fields only.
Run as `python -m bench.baseline JOB`; prints a JSON line for each batch of a bounded run.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from bench.engines import Job
from bench.workload import COLUMNS, EVENT_TIME, LATENESS_MS, QUERIES, Question
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.runtime.spark.session import SessionSettings, open_session


class BatchLines(StreamingQueryListener):
    """Prints each batch as our command line does."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Not used."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
        line = {"event": "batch", "records": {"read": event.progress.numInputRows}}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Not used."""


def open_baseline_session(checkpoint: str) -> SparkSession:
    """Our own session settings, and the connector's jars; Kafka's client is there already."""
    found = JarCache.of_user().ensure(jar_set("clients"))
    jars = ",".join(str(jar) for jar in found if not jar.name.startswith("kafka-clients-"))
    return open_session("baseline", SessionSettings(conf={"spark.jars": jars}), checkpoint)


def read(session: SparkSession, job: Job) -> DataFrame:
    """The source, decoded, with event time and lateness."""
    raw = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribe", job.input_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.max_records_per_batch)
        .load()
    )
    parsed = raw.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("row"))
    return (
        parsed.select("row.*")
        .withColumn("_event_time", F.expr(EVENT_TIME))
        .withWatermark("_event_time", f"{LATENESS_MS} milliseconds")
    )


def main(job: Job) -> None:
    """Run the query until it has caught up, or until SIGTERM."""
    checkpoint = f"{job.folder}/checkpoint"
    session = open_baseline_session(checkpoint)
    read(session, job).createOrReplaceTempView("events")
    result = session.sql(QUERIES[Question.WINDOWS]).select(
        F.col("ad_id").alias("key"), F.to_json(F.struct("*")).alias("value")
    )
    writer: Any = (
        result.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("topic", job.output_topic)
        .option("checkpointLocation", checkpoint)
        .outputMode("append" if job.emit == "final" else "update")
    )
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    if job.records:
        session.streams.addListener(BatchLines())
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        query = writer.trigger(processingTime="0 seconds").start()
        is_over.wait()
        query.stop()
    session.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))

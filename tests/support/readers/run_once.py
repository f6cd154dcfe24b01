"""Appends what `examples/readers/spark_reader.py` gives of a topic to a file, up to its end."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from onceflow.devkit.jars import JarCache, jar_set
from onceflow.java.choice import use_java
from onceflow.runtime.spark.session import SessionSettings, open_session


def main(bootstrap_servers: str, topic: str, folder: str) -> None:
    found = JarCache.of_user().ensure(jar_set("clients"))
    # Kafka's client is there already.
    jars = ",".join(str(jar) for jar in found if not jar.name.startswith("kafka-clients-"))
    use_java()
    session = open_session("reader", SessionSettings(conf={"spark.jars": jars}), folder)
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    once: Any = import_module("spark_reader").once

    def append(batch: DataFrame, _: int) -> None:
        rows = [[row.partition, row.offset] for row in batch.collect()]
        with Path(folder, "rows").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    query = (
        once(records)
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs a pipeline's query over files, without a broker: for tests of pipelines.

The same Spark, the same query and the same rules of event time as in a run, over one batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onceflow.clock import SystemClock
from onceflow.errors import ConfigError
from onceflow.pipeline.allow_list.settings import JAVA_OPTIONS, PINNED
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.query.loopback import LOOPBACK
from onceflow.pipeline.query.query import assemble
from onceflow.pipeline.query.references import TablePlace
from onceflow.pipeline.query.rejects import accepted, with_reason
from onceflow.pipeline.references.table import RefusedTableError, encoded, table_of_file

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TIMEOUT_S = 300
"""A few rows on this machine need seconds; what takes longer hangs."""


def rehearse(pipeline_file: Path, data: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Compute what a pipeline emits for given input.

    Args:
        pipeline_file: of the pipeline. Whatever its format, payloads are read as JSON here.
        data: source -> file with one JSON object per line; also for a reference, instead of
            its topic or file.

    Returns:
        Each row as a JSON object, in no particular order. Windows that the data leaves open are not
        among them.

    Raises:
        ConfigError: the pipeline has a fault, or `data` is not of its sources.
    """
    file = load_pipeline(pipeline_file)
    tables = file.pipeline.references
    needed = [*file.pipeline.sources, *(name for name, block in tables.items() if block.topic)]
    if not data.keys() >= {*needed} or not data.keys() <= {*needed, *tables}:
        raise ConfigError(
            "data for other sources",
            expected=", ".join(needed),
            found=", ".join(data),
        )
    spark = rehearsal_session()
    rows: list[dict[str, Any]] = []

    def load(name: str, source: Source, columns: StructType) -> DataFrame:
        path = data[name].resolve()
        stream = spark.readStream.schema(columns).json(str(path.parent), pathGlobFilter=path.name)
        return accepted(with_reason(source, stream, F.current_timestamp()))

    def collect(batch: DataFrame, _: int) -> None:
        texts = batch.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        rows.extend(json.loads(str(text)) for (text,) in texts)

    columns = analyse(spark, file, SystemClock().unix_ms()).columns
    with TemporaryDirectory(prefix="onceflow-rehearsal-") as checkpoint:
        place = _kept(file.pipeline, data, Path(checkpoint) / "references")
        frame = assemble(spark, file.pipeline, columns, load, tables=place)
        query = (
            frame.writeStream.foreachBatch(collect)
            .outputMode(file.pipeline.sink.output_mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(TIMEOUT_S)
        query.stop()
    return rows


def _kept(pipeline: Pipeline, data: Mapping[str, Path], folder: Path) -> TablePlace:
    """Keep the rows of references where a query finds them."""
    folder.mkdir()
    unset = {}
    for name, block in pipeline.references.items():
        path = data.get(name) or pipeline.folder / (block.file or "")
        suffix = ".jsonl" if name in data else path.suffix
        try:
            rows = encoded(table_of_file(block.reference, suffix, path.read_bytes()))
        except (OSError, RefusedTableError) as error:
            what = "a reference cannot be read"
            raise ConfigError(what, subject=f"{name} ({path})", found=str(error)) from error
        unset[name] = sha256(rows).hexdigest()
        (folder / f"{unset[name]}.arrow").write_bytes(rows)
    return TablePlace(str(folder), unset)


def rehearsal_session() -> SparkSession:
    """The session of this process, or a small one on this machine."""
    return (
        SparkSession.builder.master("local[1]")
        .config(map=dict(LOOPBACK))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        # Processors need it, and so do aggregates in Python.
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config(map=dict(PINNED))
        .getOrCreate()
    )

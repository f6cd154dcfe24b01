"""Initial state of a processor: rows of a file or a topic, which each task takes its keys of."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, json, parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.columns import Columns
from onceflow.errors import ConfigError, require
from onceflow.pipeline.file.types import column
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.process.rows import Row, values_of

MAX_BYTES = 256 * 2**20
"""Of a file, or of the values of a topic. Rows are held in memory, and go to every worker."""
HASH = "__hash"
_BATCH = "streaming.sql.batchId"
_PARTITIONS = "spark.sql.shuffle.partitions"


def read_initial(
    where: str, source: Path | Sequence[bytes], columns: Columns, keys: Sequence[str]
) -> bytes:
    """Read an initial state.

    Args:
        where: the step and the place, for messages.
        source: a file, or a JSON object for each row.
        columns: of the rows.
        keys: names of columns.

    Returns:
        Its rows, as an Arrow stream.

    Raises:
        ConfigError: there is no such file, or it has other columns, or a key is null.
    """
    schema = pa.schema(columns.to_arrow())
    try:
        table = _read(source, schema).select(schema.names).cast(schema)
        _require_keys(table, keys)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ConfigError(
            "the initial state of a processor cannot be read",
            subject=where,
            expected=f"rows with {columns.columns_ddl}",
            found=str(error).splitlines()[0],
            then="nothing was written",
        ) from error
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _require_keys(table: pa.Table, keys: Sequence[str]) -> None:
    for name in keys:
        if table.column(name).null_count:
            raise ValueError(f"`{name}`, which is a column of the key, is null in some row")


def _read(file: Path | Sequence[bytes], schema: pa.Schema) -> pa.Table:
    if not isinstance(file, Path):
        return _lines(io.BytesIO(b"\n".join(file)), schema) if file else schema.empty_table()
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES // 2**20} MiB")
    match file.suffix:
        case ".parquet":
            return parquet.read_table(file, columns=schema.names, partitioning=None)
        case ".csv":
            convert = csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
            return csv.read_csv(file, convert_options=convert)
        case ".jsonl":
            return _lines(file, schema)
    raise ValueError(f"a file that ends in .parquet, .csv or .jsonl is expected, not {file.suffix}")


def _lines(source: Path | io.BytesIO, schema: pa.Schema) -> pa.Table:
    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=True)
    return json.read_json(source, parse_options=options)


def with_hashes(frame: DataFrame, rows: bytes, keys: Sequence[str]) -> pa.Table:
    """Add what Spark spreads keys over partitions of state by.

    Args:
        frame: the input, with the same key.
        rows: of `read_initial`.
        keys: names of columns.
    """
    table = pa.ipc.open_stream(rows).read_all()
    given: Any = table.select(keys)
    spread = F.hash(*(column(name).cast(frame.schema[name].dataType) for name in keys))
    with _active_as_before(frame.sparkSession):
        hashes = frame.sparkSession.createDataFrame(given).select(spread.alias(HASH)).toArrow()
    return table.append_column(HASH, hashes.column(0))


@contextmanager
def _active_as_before(session: SparkSession) -> Iterator[None]:
    """Undo what `createDataFrame` does to its thread, where no other session could then register.

    `DataSourceRegistration` looks for sources of the same name in the thread's active session.
    """
    sessions = jvm_of(session).org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def rows_of_task(table: pa.Table) -> list[Row]:
    """Rows of the partition of this task, in the first batch; none in later ones."""
    context = TaskContext.get()
    require(context is not None, "processors run in tasks")
    assert context is not None  # noqa: S101  for the type checker only
    batch, partitions = map(context.getLocalProperty, (_BATCH, _PARTITIONS))
    require(None not in {batch, partitions}, "Spark tells tasks batch and partitions")
    if batch != "0":
        return []
    mine = np.mod(table.column(HASH).to_numpy(), int(partitions or 0)) == context.partitionId()
    found = table.drop_columns([HASH]).filter(pa.array(mine))
    return list(zip(*(values_of(found, name) for name in found.column_names), strict=True))

"""Collects the result of a query as key, value, partition and order, within the budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from onceflow.pipeline.file.types import column_at, type_at
from onceflow.protocol.order import Order, columns_of
from onceflow.runtime.records.rows import KEY_COLUMN, ORDER_COLUMN, PARTITION_COLUMN, VALUE_COLUMN
from onceflow.runtime.spark.errors import over_budget, translated_errors

_VALUE_STRUCT = "__row"


@dataclass(frozen=True)
class OutputFormat:
    """How rows of the result become records; a key that is not binary is written as text.

    `key`, `partition` and `revision` name columns. Avro alone needs `encode_avro`.
    """

    format: str
    key: str | None
    partition: str | None
    payload_columns: Callable[[Sequence[str]], Sequence[str]]
    encode_avro: Callable[[Sequence[Mapping[str, Any]]], Sequence[bytes]] | None = None
    revision: str | None = None


def to_record_columns(
    result: DataFrame, output: OutputFormat, orders: Sequence[Order]
) -> DataFrame:
    """Add the expressions that Spark itself can encode; Avro rows stay a struct until collected.

    Columns of `orders` that the result lacks are left out: they are of another query, under which
    no batch is written again.
    """

    def binary(name: str) -> Column:
        if isinstance(result.schema[name].dataType, BinaryType):
            return result[name]
        return result[name].cast("string").cast("binary")

    key = binary(output.key) if output.key else F.lit(None).cast("binary")
    columns = [key.alias(KEY_COLUMN), _value(result, output)]
    if output.partition:
        columns.append(result[output.partition].cast("int").alias(PARTITION_COLUMN))
    columns += [
        column_at(path).alias(ORDER_COLUMN + path)
        for path in columns_of(orders)
        if type_at(result.schema, path) is not None
    ]
    return result.select(*columns)


def collect(frame: DataFrame, max_result_bytes: int) -> pa.Table:
    """Run the plan, once, and bring its rows to the driver.

    Raises:
        ConfigError: the rows are larger than the budget.
        OnceflowError: what a source, or one of our functions, raised in a worker.
    """
    with translated_errors(max_result_bytes):
        table = frame.toArrow()
    if table.nbytes > max_result_bytes:
        raise over_budget(max_result_bytes, f"{table.nbytes} bytes")
    return table


def encode_collected(table: pa.Table, output: OutputFormat, revision: int) -> pa.Table:
    """Encode what Spark could not: Avro, and the revision, which no expression of Spark's knows."""
    if output.encode_avro is not None:
        more = {output.revision: revision} if output.revision else {}
        rows = [{**row, **more} for row in table.column(_VALUE_STRUCT).to_pylist()]
        values = pa.array(output.encode_avro(rows), pa.binary())
        return table.drop_columns([_VALUE_STRUCT]).append_column(VALUE_COLUMN, values)
    if output.revision is None:
        return table
    place = table.column_names.index(VALUE_COLUMN)
    values = table.column(VALUE_COLUMN)
    if output.format == "csv":
        values = pc.binary_join_element_wise(values, str(revision).encode(), b",")
    else:
        end = f",{json.dumps(output.revision)}:{revision}}}".encode()
        values = pc.binary_replace_slice(values, -1, sys.maxsize, end)
    return table.set_column(place, VALUE_COLUMN, values)


def _value(result: DataFrame, output: OutputFormat) -> Column:
    names = output.payload_columns(result.columns)
    row = F.struct(*(result[name] for name in names))
    if output.format == "avro":
        return row.alias(_VALUE_STRUCT)
    if output.format == "json":
        value = F.to_json(row, {"ignoreNullFields": "false"})
    elif output.format == "csv":
        value = F.to_csv(row)
    else:
        value = result[names[0]]
    return value.cast("binary").alias(VALUE_COLUMN)

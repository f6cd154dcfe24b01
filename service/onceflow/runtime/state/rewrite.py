"""Gives an aggregation other rows of state, which a user's function makes of those that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from onceflow.errors import ConfigError
from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.operators import StateOperator
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.reader import StateReader

Change = Callable[[dict[str, Any], dict[str, Any]], Any]
"""Makes `(key, value)` of a key and a value, or None if that row is to go."""
ROWS = 10_000
"""That are held as Python objects at a time."""
_NOTHING = "nothing was written; correct the function, then try again"


def changed_rows(
    reader: StateReader, operator: Operator, batch: int, change: Change, wanted: StateOperator
) -> Sequence[pa.Table]:
    """Call the function for each row of an operator, as of a batch.

    Raises:
        ConfigError: the function fails, or gives what cannot be stored; names function and key.
    """
    columns = [StructField("key", _struct(wanted.key)), StructField("value", _struct(wanted.value))]
    schema = to_arrow_schema(StructType(columns), timezone="UTC")
    seen: set[str] = set()
    tables = []
    for _, _, table in reader.export(operator, batch):
        for chunk in table.to_batches(ROWS):
            rows = [row for old in chunk.to_pylist() for row in _changed(change, old, schema, seen)]
            tables.append(pa.Table.from_pylist(rows, schema=schema))
    return tables


def write_rows(
    session: SparkSession,
    location: str,
    operator: StateOperator,
    tables: Sequence[pa.Table],
    partitions: int,
    version: int,
) -> Sequence[str]:
    """Write the state of an operator as of the version after `version`.

    Returns:
        The id of its files for each partition.
    """
    spark: Any = session
    writer = new_instance(jvm_of(session), "StateWriter").open(
        spark._jsparkSession,  # noqa: SLF001  no public way
        f"{location}/state",
        operator.operator,
        _struct(operator.key).json(),
        _struct(operator.value).json(),
        partitions,
        version,
    )
    for table in tables:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        writer.put(out.getvalue().to_pybytes())
    return [*writer.commit()]


def _changed(
    change: Change, old: Mapping[str, Any], schema: pa.Schema, seen: set[str]
) -> Iterator[Mapping[str, Any]]:
    def refuse(what: str, expected: str, found: str) -> ConfigError:
        subject = f"{getattr(change, '__name__', change)}, key {_shown(old['key'])}"
        return ConfigError(what, subject=subject, expected=expected, found=found, then=_NOTHING)

    form = f"(key, value) with key {_names(schema, 'key')} and value {_names(schema, 'value')}"
    try:
        new = change(dict(old["key"]), dict(old["value"]))
    except Exception as error:  # a user's function may raise anything
        found = f"{type(error).__name__}: {error}"
        raise refuse("the function failed", "a row, or None", found) from error
    if new is None:
        return
    try:
        key, value = new
        row = {"key": dict(key), "value": dict(value)}
        _check_names(row, pa.struct(schema))
        pa.Table.from_pylist([row], schema=schema)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise refuse("the function gave what cannot be stored", form, str(error)) from error
    if (text := _shown(row["key"])) in seen:
        raise refuse("the function gave two rows for one key", "one row for each key", text)
    seen.add(text)
    yield row


def _check_names(value: Any, kind: pa.DataType) -> None:
    if pa.types.is_struct(kind) and value is not None:
        names = [field.name for field in kind]
        if {*value} != {*names}:
            raise ValueError(f"columns {', '.join(map(str, value))} in place of {', '.join(names)}")
        for field in kind:
            _check_names(value[field.name], field.type)


def _names(schema: pa.Schema, part: str) -> str:
    return "{" + ", ".join(f"{each.name}: {each.type}" for each in schema.field(part).type) + "}"


def _shown(key: Mapping[str, Any]) -> str:
    return json.dumps(key, default=str)


def _struct(columns: Sequence[str]) -> StructType:
    """Columns as `StateOperator` has them; equal names are numbered, as `state list` shows them."""
    found = StructType()
    for column in columns:
        name, _, kind = column.partition(" ")
        again = sum(each.partition(" ")[0] == name for each in columns[: len(found)])
        found.add(f"{name}_{again + 1}" if again else name, DataType.fromDDL(kind))
    return found

"""The step of a query that a processor is: rows grouped by key go in, its output comes out."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from importlib.metadata import version
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from onceflow.errors import ConfigError
from onceflow.pipeline.file.types import column
from onceflow.pipeline.process.initial import with_hashes
from onceflow.pipeline.process.stock import KeyAtATime
from onceflow.processing.runner import Runner

KNOWN_PYSPARK = "4.2.0"
"""Whose names that are not public have been tried."""

_NAMES = {
    "pyspark.util": ["PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF"],
    "pyspark.sql.group": ["GroupedData.__init__"],
    "pyspark.sql.pandas.serializers": [
        "ArrowStreamSerializer.load_stream",
        "ArrowStreamUDFSerializer.dump_stream",
        "TransformWithStateInPySparkRowSerializer.load_stream",
        "TransformWithStateInPySparkRowSerializer.dump_stream",
    ],
    "pyspark.sql.pandas.types": ["to_arrow_schema"],
    "pyspark.sql.streaming.stateful_processor_util": [
        "TransformWithStateInPandasFuncMode.PROCESS_DATA",
        "TransformWithStateInPandasFuncMode.PROCESS_TIMER",
        "TransformWithStateInPandasFuncMode.COMPLETE",
        "TransformWithStateInPandasUdfUtils.transformWithStateUDF",
        "TransformWithStateInPandasUdfUtils._handle_data_rows",
        "TransformWithStateInPandasUdfUtils._handle_expired_timers",
    ],
    "pyspark.sql.streaming.stateful_processor_api_client": [
        "StatefulProcessorApiClient.get_timestamps",
    ],
    "pyspark.sql.streaming.proto.StateMessage_pb2": [
        "StateRequest",
        "StateResponse.FromString",
        "StateResponseWithTimer.FromString",
        "ImplicitGroupingKeyRequest",
        "SetImplicitKey",
        "StateVariableRequest",
        "ValueStateCall",
        "ValueStateUpdate",
        "Get",
        "Clear",
        "StatefulProcessorCall",
        "TimerStateCallCommand",
        "RegisterTimer",
        "DeleteTimer",
        "TimerRequest",
        "ExpiryTimerRequest",
    ],
}


def missing_names() -> Sequence[str]:
    """Find what keeps PySpark from running many keys at a time; empty if nothing does."""
    found = version("pyspark")
    if found != KNOWN_PYSPARK:
        return [f"what PySpark {KNOWN_PYSPARK} has (it is {found})"]
    return list(_missing())


def process(
    frame: DataFrame,
    keys: Sequence[str],
    order: Sequence[str],
    output: StructType,
    runner: Runner,
    *,
    event_time: str = "",
) -> DataFrame:
    """Hand the rows of each key to a processor, in their order; what it makes of them is returned.

    Args:
        frame: with a watermark.
        keys: names of columns.
        order: names of columns: the event time, and what decides between equal ones.
        output: columns of the rows that the runner gives.
        runner: handles one key at a time.
        event_time: the one of `output` that windows and joins go by. Rows that are not after the
            watermark of the batch before are late there.

    Raises:
        ConfigError: with an initial state, and a PySpark that lacks what this takes.
    """
    missing = missing_names()
    if missing and runner.initial is not None:
        raise ConfigError(
            "an initial state cannot be taken",
            expected=f"PySpark {KNOWN_PYSPARK}",
            found=f"one that lacks {', '.join(missing)}",
        )
    if missing:
        text = "processors run a key at a time, some ten times slower; this PySpark lacks "
        warnings.warn(text + ", ".join(missing), RuntimeWarning, stacklevel=2)
    step = key_at_a_time if missing else batch_at_a_time
    rows = step(frame, keys, order, output, runner)
    return with_event_time(rows, event_time) if event_time else rows


def with_event_time(frame: DataFrame, name: str) -> DataFrame:
    """Have windows and joins go by a column, as if the watermark were declared for it.

    Spark's own `eventTimeColumnName` ends the query at a row that is late.
    """
    mark = {"spark.watermarkDelayMs": 0}
    return frame.withColumn(name, column(name).alias(name, metadata=mark))


def key_at_a_time(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], output: StructType, runner: Runner
) -> DataFrame:
    """The step by what PySpark makes public."""
    stock = _stock(frame, keys, order, output, runner)
    grouped = frame.groupBy(*map(column, keys))
    return grouped.transformWithState(stock, output, "Append", "EventTime")


def batch_at_a_time(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], output: StructType, runner: Runner
) -> DataFrame:
    """The step with our own function in place of PySpark's, which calls a processor for each key.

    `missing_names` must have found nothing.
    """
    # Not public: they may be missing.
    from pyspark.sql.pandas.functions import pandas_udf  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.util import PythonEvalType  # noqa: PLC0415

    from onceflow.pipeline.process.worker import BatchAtATime  # noqa: PLC0415

    stock = _stock(frame, keys, order, output, runner)
    first = None
    if runner.initial is not None:
        first = with_hashes(frame, runner.initial, keys)
        runner = replace(runner, initial=None)
    schema = to_arrow_schema(output, timezone="UTC")
    ours = BatchAtATime(runner, stock, keys, order, schema, first)
    make: Any = pandas_udf
    function = make(
        ours.transformWithStateUDF,
        returnType=output,
        functionType=PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
    )
    called = function(*map(column, frame.columns))
    session: Any = frame.sparkSession
    grouped: Any = frame.groupBy(*map(column, keys))
    made = grouped._jgd.transformWithStateInPySpark(  # noqa: SLF001
        called._jc,  # noqa: SLF001
        session._jsparkSession.parseDataType(output.json()),  # noqa: SLF001
        "Append",
        "EventTime",
        None,
        "",
    )
    return DataFrame(made, session)


def _stock(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], output: StructType, runner: Runner
) -> KeyAtATime:
    key_schema = StructType([frame.schema[name] for name in keys])
    return KeyAtATime(runner, key_schema, frame.columns, order, output.names)


def _missing() -> Iterator[str]:
    for module, names in _NAMES.items():
        try:
            found = importlib.import_module(module)
        except (ImportError, TypeError) as error:
            yield f"{module} ({error})"
            continue
        for name in names:
            try:
                reduce(getattr, name.split("."), found)
            except AttributeError:
                yield f"{module}.{name}"

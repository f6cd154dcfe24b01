"""From a pipeline to one DataFrame. The same code serves the analysis and the running query."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onceflow.contracts.source import TICK_COLUMN
from onceflow.pipeline.file.duplicates import without_duplicates
from onceflow.pipeline.file.imports import code_error, import_named
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.file.types import column
from onceflow.pipeline.query.aggregates import callable_by_name, computed, declared_aggregates
from onceflow.pipeline.query.parameters import register_parameters, without_values
from onceflow.pipeline.query.python_code import let_workers_import
from onceflow.pipeline.query.references import NOWHERE, TablePlace, open_tables
from onceflow.pipeline.query.steps import Prepare, Watch, with_steps
from onceflow.processing.runner import PLACE

EVENT_TIME_COLUMN = "_event_time"
"""Column that an `event_time` expression adds to its view."""

SourceLoader = Callable[[str, Source, StructType], DataFrame]
"""(view, source, columns to read) -> streaming DataFrame with these columns."""


def declared_columns(source: Source) -> StructType:
    """The view's columns as the file declares them. Needs a running session.

    Raises:
        ParseException: the DDL is not Spark's.
    """
    columns = StructType.fromDDL(source.columns_ddl)
    # Text that is one bare type, e.g. "INT", is read as that type.
    return columns if isinstance(columns, StructType) else StructType()


def is_column(source: Source, columns: StructType) -> bool:
    """Whether `event_time` names a column, and is not an expression over columns."""
    return (source.event_time or "").casefold() in {name.casefold() for name in columns.names}


def assemble(  # noqa: PLR0913  an analysis leaves out the last four
    spark: SparkSession,
    pipeline: Pipeline,
    columns: Mapping[str, StructType],
    load_source: SourceLoader,
    *,
    watch: Watch = lambda _, view: view,
    watch_step: Watch = lambda _, rows: rows,
    prepare: Prepare = lambda runner: runner,
    tables: TablePlace = NOWHERE,
) -> DataFrame:
    """Build the result of the pipeline's query or function over its sources.

    Declared columns that are not read are null in their view: the analysis found that nothing looks
    at them.

    Args:
        spark: the session to build in.
        pipeline: analysed without a fault.
        columns: of each source, those to read (`Analysis.columns`).
        load_source: makes the DataFrame of a source; with `TICK_COLUMN` if it has ticks.
        watch: told of each finished view; what it returns takes the view's place.
        watch_step: the same for what comes out of processors, with rejected records.
        prepare: told of the runner of each processor, and of each GROUP BY with aggregates of the
            file; what it returns takes its place.
        tables: where rows of references are.

    Raises:
        ConfigError: the Python function cannot be imported or fails.
        PySparkException: Spark refuses the query.
    """
    frames = {
        name: watch(name, _view(name, source, load_source(name, source, columns[name])))
        for name, source in pipeline.sources.items()
    }
    frames |= open_tables(spark, pipeline, tables)
    register_parameters(spark, pipeline.declared_parameters)
    if pipeline.transform is not None or pipeline.process or pipeline.aggregates:
        let_workers_import(spark, pipeline.folder)
    aggregates = declared_aggregates(pipeline)
    names = (name for n in count(1) if (name := f"aggregates_{n}") not in pipeline.process)

    def run_query(text: str, views: Mapping[str, DataFrame]) -> DataFrame:
        if not aggregates:
            return _run_query(spark, text, views)
        with callable_by_name(spark, aggregates):
            frame = _run_query(spark, text, views)
        is_update = pipeline.sink.emit == "updates"
        return computed(frame, aggregates, names, prepare, emits_updates=is_update)

    with without_values(spark):
        frames = {**with_steps(pipeline, frames, run_query, watch_step, prepare)}
        if pipeline.transform is not None:
            return call_transform(import_named(pipeline.transform, pipeline.folder), frames)
        return run_query(pipeline.query or "", frames)


def _view(name: str, source: Source, loaded: DataFrame) -> DataFrame:
    declared = declared_columns(source)
    read = set(loaded.columns)
    has_ticks = TICK_COLUMN in read
    frame = loaded.select(
        *(
            column(field.name)
            if field.name in read
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in declared
        ),
        *(name for name in PLACE if name in read and name not in declared.names),
        *([TICK_COLUMN] if has_ticks else []),
    )
    if source.event_time is None:
        return frame
    time_column = source.event_time
    if not is_column(source, declared):
        time_column = EVENT_TIME_COLUMN
        frame = frame.withColumn(time_column, F.expr(source.event_time))
    if has_ticks:
        happened = F.coalesce(F.col(TICK_COLUMN), column(time_column))
        frame = frame.withColumn(time_column, happened)
    frame = frame.withWatermark(time_column, f"{source.lateness_ms} milliseconds")
    if has_ticks:
        frame = _without_ticks(frame, time_column)
    return without_duplicates(name, source, frame, time_column)


def _without_ticks(frame: DataFrame, time_column: str) -> DataFrame:
    """Drop the rows of ticks, now that they have moved the event watermark.

    The filter must name the event time. Spark lets others through to below the watermark, where
    they would drop ticks before these have an effect.
    """
    is_record = column(time_column) != F.col(TICK_COLUMN)
    return frame.where(F.coalesce(is_record, F.lit(True))).drop(TICK_COLUMN)


def _run_query(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        return spark.sql(text)
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)


def call_transform(function: Callable[..., Any], frames: Mapping[str, DataFrame]) -> DataFrame:
    """Call the user's function with each source under its name.

    Raises:
        ConfigError: its parameters are not the sources, it fails, or returns something else.
        PySparkException: Spark refuses what it does.
    """
    try:
        inspect.signature(function).bind(**frames)
    except TypeError as error:
        raise code_error(
            "the function's parameters are not the sources",
            str(error),
            expected=f"def {getattr(function, '__name__', 'transform')}({', '.join(frames)})",
        ) from error
    try:
        result = function(**frames)
    except PySparkException:
        raise
    except Exception as error:  # a user's function may raise anything
        found = f"{type(error).__name__}: {error}"
        raise code_error("the function failed", found) from error
    if not isinstance(result, DataFrame):
        raise code_error(
            "the function returns something else", type(result).__name__, expected="a DataFrame"
        )
    return result

"""The processors of a pipeline as views: each reads a view or a query over the views above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.imports import import_named
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.process import Process
from onceflow.pipeline.file.types import DELAY, columns_of, spark_schema
from onceflow.pipeline.process.operator import process
from onceflow.processing.checks import make_runner
from onceflow.processing.runner import Runner

REJECTED_COLUMN = "__rejected"
"""Of what comes out of a processor: which record it failed on, as JSON; null in all other rows."""
_VIEW = re.compile(r"[a-z][a-z0-9_]*")

Watch = Callable[[str, DataFrame], DataFrame]
Prepare = Callable[[Runner], Runner]
RunQuery = Callable[[str, Mapping[str, DataFrame]], DataFrame]


def is_view(text: str) -> bool:
    """Whether the input of a step is the name of a view, and not a query."""
    return _VIEW.fullmatch(text.strip()) is not None


def with_steps(
    pipeline: Pipeline,
    views: Mapping[str, DataFrame],
    run_query: RunQuery,
    watch: Watch,
    prepare: Prepare,
) -> Mapping[str, DataFrame]:
    """Add the view of each step, in the order of the file.

    Args:
        pipeline: its steps.
        views: of its sources.
        run_query: makes a DataFrame of a query over views.
        watch: told of what comes out of each step, with `REJECTED_COLUMN`; what it returns takes
            its place.
        prepare: told of the runner of each step; what it returns takes its place.

    Raises:
        ConfigError: a class cannot be imported, or not be used for its input. The faults have the
            path of the step in `where`.
        PySparkException: Spark refuses a query.
    """
    found = dict(views)
    for name, step in pipeline.process.items():
        text = step.input.strip()
        try:
            frame = _known(found, text) if is_view(text) else run_query(text, found)
            runner = prepare(_runner(name, step, pipeline, frame.schema))
        except ConfigError as error:
            raise _placed(name, error) from error
        rows = watch(name, _applied(frame, step, runner))
        found[name] = rows.filter(F.col(REJECTED_COLUMN).isNull()).drop(REJECTED_COLUMN)
    return found


def _known(views: Mapping[str, DataFrame], name: str) -> DataFrame:
    if name not in views:
        fault = Fault(
            f"there is no view `{name}` to read",
            expected=f"one of {', '.join(views)}, or a query",
            suggestion="Steps read sources, and steps above them.",
        )
        raise ConfigError("process refused", faults=(fault,))
    return views[name]


def _placed(name: str, error: ConfigError) -> ConfigError:
    faults = error.faults or (Fault(error.what, error.subject),)
    return ConfigError(
        "process refused",
        faults=tuple(
            replace(
                each, what=f"{each.where}: {each.what}" if each.where else each.what, where=name
            )
            for each in faults
        ),
    )


def _runner(name: str, step: Process, pipeline: Pipeline, schema: StructType) -> Runner:
    runner = make_runner(
        import_named(step.kind, pipeline.folder),
        name=name,
        columns=columns_of(schema),
        key=step.key,
        time=_event_time(schema),
        output=step.output,
        order=step.order or (),
        when=step.when,
        keeps_going=pipeline.on_reject_by_step(name) != "fail",
        parameters=pipeline.declared_parameters,
        initial=step.initial_state.columns if step.initial_state else "",
    )
    types = {name: each.ddl for name, each in runner.output.by_name.items()}
    if step.event_time is not None and types.get(step.event_time) != "timestamp":
        times = ", ".join(name for name, ddl in types.items() if ddl == "timestamp")
        fault = Fault(
            f"`{step.event_time}` is not a timestamp of the output",
            "event_time",
            expected=f"one of {times}" if times else "a column of type timestamp in `output`",
        )
        raise ConfigError("process refused", faults=(fault,))
    return runner


def _event_time(schema: StructType) -> str:
    """The column that moves the event watermark."""
    times = [
        each.name
        for each in schema
        if DELAY in (each.metadata or {}) and isinstance(each.dataType, TimestampType)
    ]
    if len(times) != 1:
        found = f"{len(times)} event times: {', '.join(times)}" if times else "no event time"
        fault = Fault(
            f"the input has {found}",
            expected="one column with the event time that its sources declare",
            suggestion="Give the source `event_time` and `lateness`, and select that column; of a"
            " window, select window_time(window).",
        )
        raise ConfigError("process refused", faults=(fault,))
    return times[0]


def _applied(frame: DataFrame, step: Process, runner: Runner) -> DataFrame:
    output = spark_schema(runner.output).add(StructField(REJECTED_COLUMN, StringType()))
    time = step.event_time or ""
    return process(frame, runner.keys, runner.order_columns, output, runner, event_time=time)

"""What can be known about a pipeline's query before it runs: Spark analyses it over stand-ins.

Stand-ins are streams with the declared columns that never run, so no broker is needed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from onceflow.contracts.source import META_COLUMNS
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.loader import PipelineFile
from onceflow.pipeline.output_rules import output_faults
from onceflow.pipeline.plan import PlanFacts, analysed_plan, jvm_of, read_plan
from onceflow.pipeline.query import assemble, declared_columns
from onceflow.pipeline.rules import Rule
from onceflow.pipeline.source import Source
from onceflow.pipeline.source_rules import payload_names, source_faults, stand_in
from onceflow.pipeline.spark_faults import fault_of, line_of

ROW_COUNT_COLUMN = "_offset"
"""Read where the query looks at no column at all, such as for count(*): rows must still come."""


@dataclass(frozen=True)
class Analysis:
    """What was found out about a pipeline that may run.

    Args:
        columns: source -> columns that must be read, in declared order; no other one matters.
        output: the result's columns.
        is_stateful: whether rows of one batch influence later batches.
        warnings: what may make a replay differ or state grow, each with its place in the file.
    """

    columns: Mapping[str, StructType]
    output: StructType
    is_stateful: bool
    warnings: tuple[Fault, ...]


def analyse(spark: SparkSession, file: PipelineFile) -> Analysis:
    """Analyse a pipeline without running it.

    Raises:
        ConfigError: lists every fault, each with its line.
    """
    _silence_spark()
    _refuse(file, [*source_faults(spark, file)])
    declared = {name: declared_columns(s) for name, s in file.pipeline.sources.items()}
    frame = _analysed(spark, file, declared)
    facts = read_plan(frame)
    _refuse(
        file,
        [
            *_reading_faults(file, facts),
            *_replay_faults(file, facts),
            *_streaming_faults(spark, file, frame),
            *output_faults(file, frame.schema),
        ],
    )
    columns = {
        view: _columns_to_read(file.pipeline.sources[view], declared[view], live)
        for view, live in facts.reads
    }
    return Analysis(columns, frame.schema, facts.is_stateful, (*_warnings(file, facts),))


def to_arrow(columns: StructType) -> pa.Schema:
    """The same columns in Arrow's words, the form of `SourceSpec.schema`."""
    return to_arrow_schema(columns, timezone="UTC")


def _silence_spark() -> None:
    """PySpark writes a stack trace as JSON to stderr for each error that it raises."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True


def _refuse(file: PipelineFile, faults: Sequence[Fault]) -> None:
    if faults:
        in_order = tuple(sorted(faults, key=lambda fault: fault.line or 0))
        raise ConfigError("pipeline refused", subject=str(file.path), faults=in_order)


def _transformation(file: PipelineFile) -> tuple[str]:
    return ("transform",) if file.pipeline.transform else ("query",)


def _analysed(
    spark: SparkSession, file: PipelineFile, declared: Mapping[str, StructType]
) -> DataFrame:
    """The result over stand-ins.

    Raises:
        ConfigError: the query is refused by Spark, or the Python function by us.
    """
    pipeline = file.pipeline
    try:
        if pipeline.query is not None:
            # Refuses everything that is no query before it could run: DROP TABLE runs at once.
            session = spark._jsparkSession  # noqa: SLF001  no public way
            session.sessionState().sqlParser().parseQuery(pipeline.query)
        return assemble(
            spark, pipeline, declared, lambda name, _, columns: stand_in(spark, name, columns)
        )
    except PySparkException as error:
        fault = fault_of(error, list(pipeline.sources))
        placed = file.fault_at(Rule.INVALID_QUERY, fault, _transformation(file), line_of(error))
        raise ConfigError("pipeline refused", subject=str(file.path), faults=(placed,)) from error
    except ConfigError as error:
        at = _transformation(file)
        placed_faults = [file.fault_at(Rule.INVALID_QUERY, fault, at) for fault in error.faults]
        _refuse(file, placed_faults)
        raise


def _reading_faults(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    times_read = Counter(view for view, _ in facts.reads)
    for name in file.pipeline.sources:
        if times_read[name] == 0:
            yield file.fault_at(
                Rule.SOURCE_USE,
                Fault(
                    f"the source `{name}` is not used",
                    suggestion="Use it in the query, or remove it.",
                ),
                ("sources", name),
            )
        if times_read[name] > 1:
            yield file.fault_at(
                Rule.SOURCE_USE,
                Fault(
                    f"the source `{name}` is read {times_read[name]} times",
                    expected="once: each reading has a position of its own",
                    suggestion="Declare a second source over the same topics.",
                ),
                _transformation(file),
            )
    for leaf in facts.foreign:
        yield file.fault_at(
            Rule.SOURCE_USE,
            Fault(
                f"the query reads {leaf}, which may change before a replay",
                expected=f"only the sources {', '.join(file.pipeline.sources)}",
            ),
            _transformation(file),
        )


def _replay_faults(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    """What makes a replay compute other rows for certain."""
    for name in facts.varying:
        yield file.fault_at(
            Rule.NOT_REPEATABLE,
            Fault(
                f"{name}() gives another result when a batch is replayed",
                expected="functions that give the same result for the same rows",
                suggestion="Derive the value from the row, e.g. a hash of its columns.",
            ),
            _transformation(file),
        )
    if facts.limits:
        yield file.fault_at(
            Rule.NOT_REPEATABLE,
            Fault("which rows LIMIT takes depends on their order", expected="no LIMIT or OFFSET"),
            _transformation(file),
        )


def _streaming_faults(spark: SparkSession, file: PipelineFile, frame: DataFrame) -> Iterator[Fault]:
    """What Spark would refuse at the start of the streaming query."""
    jvm = jvm_of(spark)
    mode = getattr(
        jvm.org.apache.spark.sql.streaming.OutputMode,
        file.pipeline.sink.output_mode.capitalize(),
    )()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(analysed_plan(frame), mode)
    except AnalysisException as error:
        fault = fault_of(error, list(file.pipeline.sources))
        told = _about_event_time(file, error, fault)
        yield file.fault_at(Rule.NOT_STREAMABLE, told, _transformation(file))


def _about_event_time(file: PipelineFile, error: PySparkException, fault: Fault) -> Fault:
    """Where time cannot pass because a source has no event time, say so."""
    timeless = [name for name, s in file.pipeline.sources.items() if s.event_time is None]
    if "watermark" not in str(error) or not timeless:
        return fault
    return Fault(
        f"no time passes for {', '.join(timeless)}, so nothing would ever be emitted",
        expected="`event_time` and `lateness` in each source of an aggregation or outer join",
        suggestion="Add them, or use `emit: updates` if it is an aggregation.",
    )


def _columns_to_read(source: Source, declared: StructType, live: Sequence[str]) -> StructType:
    needed = set(live)
    if source.format == "csv" and not needed <= META_COLUMNS.keys():
        # A column of a line is found by counting from its beginning.
        needed |= set(payload_names(declared))
    columns = [field for field in declared if field.name in needed]
    return StructType(columns or [StructField(ROW_COUNT_COLUMN, LongType())])


def _warnings(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    at = _transformation(file)
    for name in facts.order_dependent:
        yield file.fault_at(
            Rule.ORDER_DEPENDENT,
            Fault(
                f"{name} depends on the order of rows, which differs between replays",
                suggestion="A replay that differs halts the pipeline. Use min, max, or DECIMAL.",
            ),
            at,
        )
    for name in facts.python_functions:
        yield file.fault_at(
            Rule.UNPROVEN_FUNCTION,
            Fault(f"whether {name}() gives the same result at every replay cannot be known"),
            at,
        )
    timeless = [name for name, s in file.pipeline.sources.items() if s.event_time is None]
    if facts.is_stateful and timeless:
        yield file.fault_at(
            Rule.UNBOUNDED_STATE,
            Fault(
                f"state about rows of {', '.join(timeless)} is kept for ever",
                suggestion="Give the source an `event_time`.",
            ),
            at,
        )

"""Analyses a pipeline's query before it runs: by Spark, over stand-ins.

Stand-ins are streams with the declared columns that never run, so no broker is needed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from onceflow.contracts.source import META_COLUMNS
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.allow_list.bounds import (
    CONF,
    DEFAULT_MAX_MADE,
    made_without_bound,
    written_without_bound,
)
from onceflow.pipeline.allow_list.check import check_analysed, check_written
from onceflow.pipeline.analysis.ordering import order_faults, order_of
from onceflow.pipeline.analysis.state_size import StateForecast, forecast_state
from onceflow.pipeline.determinism.plan_rules import judge_plan, python_functions
from onceflow.pipeline.determinism.python_code import inspect_code
from onceflow.pipeline.determinism.verdict import Finding, judge, of_code, of_plan
from onceflow.pipeline.file.aggregate import parse_call
from onceflow.pipeline.file.imports import import_named
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.policies import Waiver
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.file.source import Source
from onceflow.pipeline.plan.facts import PlanFacts, facts_of
from onceflow.pipeline.plan.operators import StateOperator, read_operators
from onceflow.pipeline.plan.parts import parts_of_plan, parts_of_query
from onceflow.pipeline.plan.plan import PlanNode, analysed_plan, jvm_of, read_plan
from onceflow.pipeline.query.output_rules import output_faults
from onceflow.pipeline.query.parameters import parameter_faults
from onceflow.pipeline.query.query import assemble, declared_columns
from onceflow.pipeline.query.references import table_faults
from onceflow.pipeline.query.rejects import accepted, looked_at, with_reason
from onceflow.pipeline.query.source_rules import payload_names, source_faults, stand_in
from onceflow.pipeline.query.spark_faults import fault_of, line_of
from onceflow.pipeline.query.steps import is_view
from onceflow.processing.runner import PLACE, Runner
from onceflow.protocol.guarantee import Determinism
from onceflow.protocol.order import Order

ROW_COUNT_COLUMN = "_offset"
"""Read where the query looks at no column at all, such as for count(*): rows must still come."""

_OWN = frozenset({"MapInArrow", "TransformWithStateInPySpark"})


@dataclass(frozen=True)
class Analysis:
    """The analysis of a pipeline that may run.

    Args:
        columns: source -> columns that must be read, in declared order; no other one matters.
        is_stateful: whether rows of one batch influence later batches.
        order: in which the records of a batch are written.
        warnings: what may make a replay differ or state grow, each with its place in the file.
        waived: rules of determinism that it breaks, and that the user waives.
        processors: step -> what runs it.
        state: what each operator will keep.
        operators: makes a list of what has state, in some 0.1 s.
    """

    columns: Mapping[str, StructType]
    output: StructType
    is_stateful: bool
    order: Order
    warnings: tuple[Fault, ...]
    waived: tuple[Waiver, ...] = ()
    processors: Mapping[str, Runner] = field(default_factory=dict)
    state: tuple[StateForecast, ...] = ()
    operators: Callable[[], Sequence[StateOperator]] = list

    @property
    def determinism(self) -> Determinism:
        """Whether replays compute the same rows, as far as anybody can know before the start."""
        return Determinism.WAIVED if self.waived else Determinism.HOLDS


def analyse(spark: SparkSession, file: PipelineFile, now_ms: int) -> Analysis:
    """Analyse a pipeline without running it, in any session under the settings of a run.

    Waivers end by `now_ms`, in unix time.

    Raises:
        ConfigError: lists every fault, each with its line.
    """
    _silence_spark()
    try:
        return _analyse(spark, file, now_ms)
    except Py4JJavaError as error:
        # Not an error that Spark explains; its text may hold anything.
        kind = error.java_exception.getClass().getSimpleName()
        what = f"Spark fails to analyse the query ({kind})"
        fault = Fault(what, suggestion="Write parts of it as subqueries, to find which one it is.")
        _refuse(file, [file.fault_at(Rule.INVALID_QUERY, fault, file.transformation)])
        raise


def _analyse(spark: SparkSession, file: PipelineFile, now_ms: int) -> Analysis:
    _refuse(file, [*source_faults(spark, file)])
    declared = {name: _offered_columns(file.pipeline, name) for name in file.pipeline.sources}
    processors: dict[str, Runner] = {}
    frame = _analysed(spark, file, declared, processors)
    parts = parts_of_plan(spark, analysed_plan(frame))
    at = file.transformation
    _refuse(file, file.faults_at(Rule.NOT_ALLOWED, check_analysed(parts), at))
    unbounded = made_without_bound(parts, _max_made(spark))
    _refuse(file, file.faults_at(Rule.UNBOUNDED, unbounded, at))
    plan = read_plan(frame)
    facts = facts_of(plan)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    judgement = judge(_findings(file, plan, facts), file.pipeline.waivers, today)
    _refuse(
        file,
        [
            *_reading_faults(file, facts),
            *_table_faults(file, facts),
            *judgement.faults,
            *_streaming_faults(spark, file, frame),
            *output_faults(file, frame.schema),
            *order_faults(file, frame.schema),
        ],
    )
    columns = {
        view: _columns_to_read(file.pipeline.sources[view], declared[view], live)
        for view, live in facts.reads
    }
    warnings = (*judgement.warnings, *_state_warnings(file, facts))
    lateness_ms = max(source.lateness_ms or 0 for source in file.pipeline.sources.values())
    order = order_of(file.pipeline.sink, frame.schema, keeps_order=facts.keeps_order)
    return Analysis(
        columns,
        frame.schema,
        facts.is_stateful,
        order,
        warnings,
        judgement.waived,
        processors,
        tuple(forecast_state(plan, processors, lateness_ms)),
        partial(read_operators, frame, file.pipeline.sink.output_mode),
    )


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


def _max_made(spark: SparkSession) -> int:
    return int(spark.conf.get(CONF, None) or DEFAULT_MAX_MADE)


def _analysed(
    spark: SparkSession,
    file: PipelineFile,
    declared: Mapping[str, StructType],
    processors: dict[str, Runner],
) -> DataFrame:
    """The result over stand-ins; adds the processors that it meets.

    Raises:
        ConfigError: the query is refused by us or by Spark, or the Python function by us.
    """
    pipeline, at = file.pipeline, file.transformation
    try:
        # Before anything is looked up: DROP TABLE runs when it is analysed, and so do options.
        views = [*pipeline.sources, *pipeline.references]
        for name, step in pipeline.process.items():
            if not is_view(step.input):
                _check_written(spark, file, step.input, views, ("process", name, "input"))
            views.append(name)
        if pipeline.query:
            _check_written(spark, file, pipeline.query, views, at)
        return assemble(
            spark,
            pipeline,
            declared,
            lambda name, source, columns: accepted(
                with_reason(source, stand_in(spark, name, columns), F.current_timestamp())
            ),
            prepare=lambda runner: processors.setdefault(runner.name, runner),
        )
    except PySparkException as error:
        names = {view: columns.names for view, columns in declared.items()}
        names |= {
            table: [*block.reference.table_columns.names]
            for table, block in pipeline.references.items()
        }
        placed = file.fault_at(Rule.INVALID_QUERY, fault_of(error, names), at, line_of(error))
        raise ConfigError("pipeline refused", subject=str(file.path), faults=(placed,)) from error
    except ConfigError as error:
        faults = [
            file.fault_at(
                Rule.INVALID_QUERY,
                fault,
                _place_of(pipeline, fault) or at,
            )
            for fault in error.faults
            if not fault.rule
        ]
        _refuse(file, faults)
        raise


def _place_of(pipeline: Pipeline, fault: Fault) -> tuple[str, ...]:
    """The step or the aggregate that a fault names; nothing if it is the query."""
    blocks: Mapping[str, Collection[str]] = {
        "process": pipeline.process,
        "aggregates": pipeline.aggregates,
    }
    return next(((block, fault.where) for block, n in blocks.items() if fault.where in n), ())


def _check_written(
    spark: SparkSession,
    file: PipelineFile,
    text: str,
    views: Sequence[str],
    at: Sequence[str],
) -> None:
    """Refuse a query for what it is made of."""
    written = parts_of_query(spark, text)
    refused = check_written(written, views, file.pipeline.aggregates)
    _refuse(file, file.faults_at(Rule.NOT_ALLOWED, refused, at))
    unknown = parameter_faults(written, file.pipeline.declared_parameters)
    _refuse(file, file.faults_at(Rule.INVALID_QUERY, unknown, at))
    unbounded = written_without_bound(written, _max_made(spark))
    _refuse(file, file.faults_at(Rule.UNBOUNDED, unbounded, at))


def _reading_faults(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    times_read = Counter(view for view, _ in facts.reads)
    for name in file.pipeline.sources:
        if times_read[name] == 0:
            fault = Fault(
                f"the source `{name}` is not used",
                suggestion="Use it in the query, or remove it.",
            )
            yield file.fault_at(Rule.SOURCE_USE, fault, ("sources", name))
        if times_read[name] > 1:
            fault = Fault(
                f"the source `{name}` is read {times_read[name]} times",
                expected="once: each reading has a position of its own",
                suggestion="Declare a second source over the same topics.",
            )
            yield file.fault_at(Rule.SOURCE_USE, fault, file.transformation)


def _table_faults(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    for name, fault in table_faults(file.pipeline, facts.looked_up):
        yield file.fault_at(Rule.SOURCE_USE, fault, ("references", name))


def _findings(file: PipelineFile, plan: PlanNode, facts: PlanFacts) -> Iterator[Finding]:
    """Everything that a replay may compute differently, each in its place."""
    at, pipeline = file.transformation, file.pipeline
    # In a query alone, those are our own processors and aggregates.
    found = [
        of_plan(each)
        for each in judge_plan(plan)
        if pipeline.transform is not None or each.name not in _OWN
    ]
    found += [_foreign(kind, pipeline.sources) for kind in facts.foreign]
    for finding in found:
        yield replace(finding, fault=file.fault_at(finding.rule, finding.fault, at))
    kinds = [step.kind for step in pipeline.process.values()]
    calls = map(parse_call, pipeline.aggregates.values())
    kinds += [call.kind for call in calls if not call.is_ready]
    classes = [import_named(kind, pipeline.folder) for kind in kinds]
    for each in inspect_code(classes, pipeline.folder).findings:
        yield of_code(each, pipeline.folder)
    if pipeline.transform is None:
        return
    function = import_named(pipeline.transform, pipeline.folder)
    looked_into = inspect_code([function], pipeline.folder)
    yield from (of_code(each, pipeline.folder) for each in looked_into.findings)
    for name in python_functions(plan):
        if name not in looked_into.functions:
            fault = Fault(f"whether {name}() gives the same result at every replay cannot be known")
            placed = file.fault_at(Rule.UNPROVEN_FUNCTION, fault, at)
            yield Finding(Rule.UNPROVEN_FUNCTION, f"query: {name}", placed, is_certain=False)


def _foreign(kind: str, sources: Iterable[str]) -> Finding:
    # What it is called, and what its columns are, is not ours to tell.
    fault = Fault(
        f"the query reads a {kind}, which may change before a replay",
        expected=f"only the sources {', '.join(sources)}",
    )
    return Finding(Rule.ND_SOURCE, f"query: {kind}", fault)


def _streaming_faults(spark: SparkSession, file: PipelineFile, frame: DataFrame) -> Iterator[Fault]:
    """Find what Spark would refuse at the start of the streaming query."""
    jvm = jvm_of(spark)
    mode = getattr(
        jvm.org.apache.spark.sql.streaming.OutputMode,
        file.pipeline.sink.output_mode.capitalize(),
    )()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(analysed_plan(frame), mode)
    except AnalysisException as error:
        fault = fault_of(error, dict.fromkeys(file.pipeline.sources, ()))
        told = _about_event_time(file, error, fault)
        yield file.fault_at(Rule.NOT_STREAMABLE, told, file.transformation)


def _about_event_time(file: PipelineFile, error: PySparkException, fault: Fault) -> Fault:
    """Where time cannot pass because a source has no event time, say so."""
    timeless = _timeless(file)
    if "watermark" not in str(error) or not timeless:
        return fault
    return Fault(
        f"no time passes for {', '.join(timeless)}, so nothing would ever be emitted",
        expected="`event_time` and `lateness` in each source of an aggregation or outer join",
        suggestion="Add them, or use `emit: updates` if it is an aggregation.",
    )


def _offered_columns(pipeline: Pipeline, name: str) -> StructType:
    """The declared columns, and those of the record itself that rejects and processors look at."""
    source = pipeline.sources[name]
    declared = declared_columns(source)
    is_ordered = any(step.input.strip() == name for step in pipeline.process.values())
    wanted = looked_at(source) | frozenset(PLACE if is_ordered else ())
    more = sorted((wanted & META_COLUMNS.keys()) - {*declared.names})
    return StructType(
        [*declared, *(StructField(name, from_arrow_type(META_COLUMNS[name])) for name in more)]
    )


def _columns_to_read(source: Source, declared: StructType, live: Sequence[str]) -> StructType:
    needed = set(live)
    if source.format == "csv" and not needed <= META_COLUMNS.keys():
        # A column of a line is found by counting from its beginning.
        needed |= set(payload_names(declared))
    columns = [field for field in declared if field.name in needed]
    return StructType(columns or [StructField(ROW_COUNT_COLUMN, LongType())])


def _state_warnings(file: PipelineFile, facts: PlanFacts) -> Iterator[Fault]:
    timeless = _timeless(file)
    if facts.is_stateful and timeless:
        fault = Fault(
            f"state about rows of {', '.join(timeless)} is kept forever",
            suggestion="Give the source an `event_time`.",
        )
        yield file.fault_at(Rule.UNBOUNDED_STATE, fault, file.transformation)


def _timeless(file: PipelineFile) -> list[str]:
    return [name for name, source in file.pipeline.sources.items() if source.event_time is None]

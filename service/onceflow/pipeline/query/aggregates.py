"""Aggregates in Python that queries call by the names of the pipeline file.

Spark resolves and types such a call like one of a grouped function in Python, which it cannot run
on a stream. So each GROUP BY with calls is taken out of the analysed plan, and its work is done by

1. a map over the rows of each task, before the shuffle: one row for each group, with accumulators;
2. a processor for each group, which merges accumulators into its state and gives the results when
   the group closes, or with each change (`emit: updates`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, StructField, StructType

from onceflow.aggregates import Aggregate
from onceflow.columns import Columns, parse_type
from onceflow.errors import ConfigError, Fault
from onceflow.java.loader import new_instance
from onceflow.pipeline.allow_list.functions import FUNCTIONS
from onceflow.pipeline.file.aggregate import parse_call
from onceflow.pipeline.file.imports import import_named
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.types import (
    DELAY,
    columns_of,
    is_nested,
    spark_schema,
    spark_type,
    sql_name,
)
from onceflow.pipeline.plan.plan import analysed_plan, jvm_of
from onceflow.pipeline.process.operator import process, with_event_time
from onceflow.pipeline.process.partial import Partial
from onceflow.pipeline.query.steps import REJECTED_COLUMN, Prepare
from onceflow.processing.aggregated import Aggregated
from onceflow.processing.checks import make_runner
from onceflow.processing.grouped import AT, CLOSES, grouped

_WINDOW, _SESSION = "spark.timeWindow", "spark.sessionWindow"
"""In the metadata of a column: what made it."""
_NEVER = "1970-01-01T00:00:00Z"


def declared_aggregates(pipeline: Pipeline) -> Mapping[str, Aggregate]:
    """Make the aggregates of the pipeline file.

    Raises:
        ConfigError: some cannot be made; the faults have their names in `where`.
    """
    found, faults = {}, []
    for name, text in pipeline.aggregates.items():
        try:
            found[name] = _made(name, text, pipeline)
        except ConfigError as error:
            told = error.faults[0] if error.faults else Fault(error.what, expected=error.expected)
            faults.append(Fault(told.what, name, expected=told.expected))
        except Exception as error:  # noqa: BLE001  a user's class may raise anything
            faults.append(Fault(f"{text} cannot be made: {type(error).__name__}: {error}", name))
    if faults:
        raise ConfigError("aggregates refused", faults=tuple(faults))
    return found


def _made(name: str, text: str, pipeline: Pipeline) -> Aggregate:
    if name in FUNCTIONS:
        raise ConfigError(f"`{name}` is a function of Spark SQL", expected="a name of its own")
    call = parse_call(text)
    kind = import_named(call.kind, pipeline.folder)
    if not (isinstance(kind, type) and issubclass(kind, Aggregate)):
        expected = "a class that derives from onceflow.aggregates.Aggregate"
        raise ConfigError(f"{call.kind} is not an aggregate", expected=expected)
    aggregate = kind(*call.arguments, **dict(call.named))
    Aggregated(aggregate).check()
    return aggregate


@contextmanager
def callable_by_name(spark: SparkSession, aggregates: Mapping[str, Aggregate]) -> Iterator[None]:
    """Have queries that are analysed meanwhile call the aggregates; `computed` must follow."""
    catalog = spark._jsparkSession.sessionState().catalog()  # noqa: SLF001  no public way
    grouped_function: Any = arrow_udf
    try:
        for name, aggregate in aggregates.items():
            result = spark_type(parse_type(aggregate.output))
            spark.udf.register(name, grouped_function(_never_runs, result))
        yield
    finally:
        for name in aggregates:
            catalog.dropTempFunction(name, True)


def _never_runs(*_: pa.Array) -> object:
    """Be known to Spark as a grouped function, by the types of the arguments and of the result."""
    raise AssertionError


def computed(
    frame: DataFrame,
    aggregates: Mapping[str, Aggregate],
    names: Iterator[str],
    prepare: Prepare,
    *,
    emits_updates: bool,
) -> DataFrame:
    """Compute the calls of a query by operators that streams have.

    Args:
        frame: the query, analysed.
        aggregates: that it may call.
        names: one for the state of each GROUP BY with calls.
        prepare: told of the runner of each; what it returns takes its place.
        emits_updates: whether a row leaves with each change.

    Raises:
        ConfigError: a GROUP BY has another shape than can be computed.
    """
    spark = frame.sparkSession
    calls = new_instance(jvm_of(spark), "AggregateCalls")
    while calls.find(analysed_plan(frame)):
        group = _GroupBy(spark, calls, aggregates, emits_updates=emits_updates)
        made = group.result(next(names), prepare)
        plan = calls.replaced(_session(spark), analysed_plan(frame), analysed_plan(made))
        frame = DataFrame(plan, spark)
    return frame


class _GroupBy:
    """One GROUP BY that has been taken out of the plan."""

    def __init__(
        self,
        spark: SparkSession,
        calls: Any,
        aggregates: Mapping[str, Aggregate],
        *,
        emits_updates: bool,
    ) -> None:
        told = json.loads(calls.describe())
        self.names: Sequence[str] = [call["name"] for call in told["calls"]]
        self.arguments: Sequence[int] = [call["arguments"] for call in told["calls"]]
        self.aggregates = [aggregates[name] for name in self.names]
        self.emits_updates = emits_updates
        self.rows = DataFrame(calls.inputs(_session(spark)), spark)
        self.groupings = self.rows.schema.fields[: len(told["groupings"])]
        faults = [*self._shape_faults(told), *self._type_faults()]
        if faults:
            raise ConfigError("aggregates refused", faults=tuple(faults))

    def result(self, name: str, prepare: Prepare) -> DataFrame:
        """Its rows: what is grouped by as `k0` and so on, and results as `r0` and so on."""
        keys = [column for field in self.groupings for column in _taken_apart(field)]
        arguments = [self._argument(place) for place in range(len(self.names))]
        rows = self.rows.select(*keys, *self._times(), *arguments)
        groups = rows.schema.fields[: -len(arguments)]
        kept = StructType(
            [*groups]
            + [
                StructField(f"r{place}", spark_type(parse_type(each.accumulator)))
                for place, each in enumerate(self.aggregates)
            ]
        )
        output = to_arrow_schema(kept, timezone="UTC")
        partial = Partial(len(groups), self.names, self.aggregates, output)
        made = rows.mapInArrow(partial.partial_aggregates, kept)
        if CLOSES in made.columns:
            made = with_event_time(made, CLOSES)
        columns = columns_of(made.schema)
        key_names = made.columns[: len(keys)]
        declared = [
            *zip(key_names, (each.ddl for each in columns.types), strict=False),
            *((f"r{place}", each.output) for place, each in enumerate(self.aggregates)),
        ]
        runner = prepare(
            make_runner(
                grouped(key_names, self.aggregates, emits_updates=self.emits_updates),
                name=name,
                columns=columns,
                key=key_names,
                time=AT,
                output=", ".join(f"{name} {parse_type(ddl).ddl}" for name, ddl in declared),
            )
        )
        schema = spark_schema(runner.output).add(StructField(REJECTED_COLUMN, StringType()))
        merged = process(made, key_names, [AT], schema, runner)
        back = [_put_together(field) for field in self.groupings]
        return merged.select(*back, *(f"r{place}" for place in range(len(self.names))))

    @property
    def _closing(self) -> Column | None:
        """The event time that closes a group, if one is among what is grouped by."""
        for field in self.groupings:
            if DELAY in (field.metadata or {}):
                return F.col(field.name)["end"] if _is_window(field) else F.col(field.name)
        return None

    def _times(self) -> Sequence[Column]:
        closes = self._closing
        if closes is None:
            return [F.lit(_NEVER).cast("timestamp").alias(AT)]
        earlier = F.coalesce(closes - F.expr("INTERVAL 1 MILLISECOND"), F.lit(_NEVER))
        return [closes.alias(CLOSES), earlier.cast("timestamp").alias(AT)]

    def _argument(self, place: int) -> Column:
        kind = parse_type(self.aggregates[place].input)
        given = [F.col(f"a{place}_{number}") for number in range(self.arguments[place])]
        if len(given) > 1 and isinstance(kind, Columns):
            named = zip(given, kind.names, strict=True)
            return F.struct(*(each.alias(name) for each, name in named)).cast(kind.ddl)
        return given[0].cast(kind.ddl)

    def _shape_faults(self, told: Mapping[str, Any]) -> Iterator[Fault]:
        name = f"`{self.names[0]}`"
        for call in told["calls"]:
            if not call["is_plain"]:
                what = f"`{call['name']}` takes neither DISTINCT nor FILTER"
                yield Fault(what, suggestion="Use CASE WHEN condition THEN value END.")
        for other in dict.fromkeys(told["others"]):
            yield Fault(
                f"`{other}` cannot be computed in the same GROUP BY as {name}",
                expected="only aggregates that `aggregates` declares",
                suggestion="Declare one, such as `number: onceflow.aggregates:Count('int')`.",
            )
        if not self.groupings:
            yield Fault(f"{name} is used without GROUP BY", expected="GROUP BY of a column")
        for field, text in zip(self.groupings, told["groupings"], strict=True):
            if _SESSION in (field.metadata or {}):
                yield Fault(
                    f"{name} cannot be computed for session_window",
                    expected="window(...), or columns",
                    suggestion="Write a processor with a timer: docs/state.md.",
                )
            elif is_nested(field.dataType) and not _is_window(field):
                what = f"{name} is grouped by {text}, which is {sql_name(field.dataType)}"
                yield Fault(what, expected="values without parts, and window(...)")
        if not self.emits_updates and self._closing is None:
            yield Fault(
                f"nothing says when a group of {name} is complete, so it would never be emitted",
                expected="GROUP BY window(...) over the event time, or the event time itself",
                suggestion="Or use `emit: updates`, which emits a group with each change.",
            )

    def _type_faults(self) -> Iterator[Fault]:
        fields = iter(self.rows.schema.fields[len(self.groupings) :])
        for name, count, aggregate in zip(self.names, self.arguments, self.aggregates, strict=True):
            given = [next(fields).dataType for _ in range(count)]
            kind = parse_type(aggregate.input)
            parts = kind.types if count > 1 and isinstance(kind, Columns) else (kind,)
            wanted = [spark_type(each) for each in parts]
            if len(given) != len(wanted) or not all(map(self._fits, given, wanted)):
                found = ", ".join(map(sql_name, given))
                expected = ", ".join(map(sql_name, wanted))
                yield Fault(
                    f"`{name}` is called with {found}",
                    expected=expected,
                    suggestion="Cast what you hand to it.",
                )

    def _fits(self, given: DataType, wanted: DataType) -> bool:
        """Whether every value becomes one of the wanted type without a loss."""
        if isinstance(wanted, StringType):
            return isinstance(given, StringType)
        spark = self.rows.sparkSession
        parse = _session(spark).parseDataType
        cast = jvm_of(spark).org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canUpCast(parse(given.json()), parse(wanted.json())))


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession  # noqa: SLF001  no public way


def _is_window(field: StructField) -> bool:
    return _WINDOW in (field.metadata or {})


def _taken_apart(field: StructField) -> Sequence[Column]:
    """Columns of plain values, equal where GROUP BY finds them equal."""
    given, name = F.col(field.name), field.name
    if _is_window(field):
        return [given[part].alias(f"{name}_{part}") for part in ("start", "end")]
    if isinstance(field.dataType, DoubleType | FloatType):
        # 0.0 for -0.0, and one NaN of many.
        nan = F.lit(float("nan")).cast(field.dataType)
        given = F.when(F.isnan(given), nan).otherwise(given + F.lit(0).cast(field.dataType))
    return [given.alias(name)]


def _put_together(field: StructField) -> Column:
    name, metadata = field.name, field.metadata or {}
    if _is_window(field):
        parts = (F.col(f"{name}_{part}").alias(part) for part in ("start", "end"))
        return F.struct(*parts).alias(name, metadata=metadata)
    return F.col(name).alias(name, metadata=metadata)

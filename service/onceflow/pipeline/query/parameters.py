"""The SQL function `parameter('name')`: a constant of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from onceflow.errors import Fault, unknown_name
from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.parts import PlanPart
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.processing.parameters import Parameters

FUNCTION = "parameter"
_KEPT = "onceflow_parameter"
"""Function that gives the text of a value. Not for users."""
_ANALYSING = "onceflow.analysing"
"""Local property under which no value can be had."""


def register_parameters(spark: SparkSession, parameters: Parameters) -> None:
    """Let queries of a session read these parameters, and no others."""
    jvm = jvm_of(spark)
    session: Any = spark._jsparkSession  # noqa: SLF001  no public way
    parser, registry = session.sessionState().sqlParser(), session.sessionState().functionRegistry()
    values, casts = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    for name, each in parameters.declared.items():
        values.put(name, new_instance(jvm, "ParameterValue").of(name, each.default_text))
        casts.put(name, parser.parseExpression(f"cast({_KEPT}('{name}') AS {each.ddl})"))
    for function, found in ((_KEPT, values), (FUNCTION, casts)):
        builder = new_instance(jvm, "ParameterFunction").of(found)
        registry.createOrReplaceTempFunction(function, builder, "scala_udf")


@contextmanager
def without_values(spark: SparkSession) -> Iterator[None]:
    """Refuse queries that need a value to be analysed: it would be that of the start forever."""
    spark.sparkContext.setLocalProperty(_ANALYSING, "true")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_ANALYSING, None)  # type: ignore[arg-type]


def parameter_faults(parts: Sequence[PlanPart], parameters: Parameters) -> Iterator[Fault]:
    """Calls of `parameter` in a parsed query that name no parameter."""
    for place, part in enumerate(parts):
        if part.kind != "UnresolvedFunction" or [n.lower() for n in part.strings] != [FUNCTION]:
            continue
        arguments = [each for each in parts if each.parent == place]
        name = arguments[0].literal if len(arguments) == 1 else None
        if name is None:
            yield Fault("parameter() without a name", expected="one literal: parameter('name')")
        elif name not in parameters.declared:
            yield unknown_name("no parameter is called", name, [*parameters.declared])

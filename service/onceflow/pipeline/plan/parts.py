"""Every operator and expression of a plan, parsed or analysed, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import jvm_of


@dataclass(frozen=True)
class PlanPart:
    """One operator or expression.

    Args:
        kind: Catalyst's class, such as `CollectList`; with its package if it is not Spark's.
        parent: place of the part that holds it; -1 for the root.
        depth: how many parts are around it.
        is_operator: whether it gives rows, and not a value.
        name: of an expression, as SQL calls it.
        strings: texts among its fields, such as the parts of a name.
        options: what it was told by name.
        literal: of a literal of text, its beginning; None for anything else.
        number: of a literal; of times and intervals, in microseconds. None for anything else.
        written: of a literal of time, as it is in the file; None for anything else.
        moment: text that becomes a time whenever the query runs; None if there is none.
    """

    kind: str
    parent: int
    depth: int
    is_operator: bool
    name: str = ""
    strings: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    literal: str | None = None
    number: float | None = None
    written: str | None = None
    moment: str | None = None


def parts_of_query(spark: SparkSession, text: str) -> Sequence[PlanPart]:
    """The parts of a query, which is parsed and nothing else.

    Raises:
        ParseException: it is not a query.
    """
    return parts_of_plan(spark, _parser(spark).parseQuery(text))


def parts_of_expression(spark: SparkSession, text: str) -> Sequence[PlanPart]:
    """The parts of an expression, which is parsed and nothing else.

    Raises:
        ParseException: it is not an expression.
    """
    return parts_of_plan(spark, _parser(spark).parseExpression(text))


def _parser(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  no public way


def parts_of_plan(spark: SparkSession, root: Any) -> Sequence[PlanPart]:
    """The parts below Spark's own object of a plan or an expression."""
    jvm = jvm_of(spark)
    lister = new_instance(jvm, "PlanParts")
    return [PlanPart(**part) for part in json.loads(lister.list(root))]

"""Spark's analysed plan as plain data: read in one call, then looked at without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onceflow.java.loader import new_instance

VIEW_OPTION = "onceflow.view"
"""Option on a stand-in's leaf that tells whose stand-in it is."""


@dataclass(frozen=True)
class PlanExpression:
    """A node of an expression tree.

    Args:
        kind: Catalyst's class, such as `CollectList`.
        name: of a column or Python function; of anything else, as SQL calls it.
        type: Spark's simple type text; empty if it is not resolved.
        id: of a column; None for anything that names none.
        is_deterministic: Catalyst's word about it and everything below.
        is_ordered: of a `Mode`, whether it takes the lowest or highest of equals.
    """

    kind: str
    name: str
    type: str = ""
    id: int | None = None
    is_deterministic: bool = True
    is_ordered: bool = False
    children: Sequence[PlanExpression] = ()

    @property
    def references(self) -> frozenset[int]:
        """Ids of the columns that it looks at."""
        return frozenset(e.id for e in self.walk() if e.kind == "AttributeReference" and e.id)

    def walk(self) -> Iterator[PlanExpression]:
        """This and everything below."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class PlanNode:
    """A node of a logical plan.

    Args:
        kind: Catalyst's class, such as `Aggregate`.
        expressions: everything that it computes; of an Aggregate, the groupings come first.
        groupings: how many those are.
        view: of a stand-in's leaf, whose it is.
        reference: of the leaf of one, its name.
        join: of a Join, its type as SQL calls it, such as `LEFT OUTER`.
        deduplicates: view whose `deduplicate` it is; empty for any other operator.
        subqueries: plans inside of expressions.
    """

    kind: str
    is_streaming: bool
    output: Sequence[PlanExpression] = ()
    expressions: Sequence[PlanExpression] = ()
    groupings: int = 0
    view: str = ""
    reference: str = ""
    join: str = ""
    deduplicates: str = ""
    subqueries: Sequence[PlanNode] = ()
    children: Sequence[PlanNode] = ()

    @property
    def output_ids(self) -> frozenset[int]:
        """Ids of its columns."""
        return frozenset(column.id for column in self.output if column.id is not None)

    @property
    def references(self) -> frozenset[int]:
        """Ids of the columns that its expressions look at."""
        return frozenset().union(*(each.references for each in self.expressions))


def read_plan(frame: DataFrame) -> PlanNode:
    """The analysed plan of a DataFrame over stand-ins.

    Each look at a node from Python is a round trip, and another to forget it, so Java code walks.
    """
    jvm = jvm_of(frame.sparkSession)
    reader = new_instance(jvm, "PlanReader")
    return node_of(json.loads(reader.read(analysed_plan(frame), VIEW_OPTION)))


def analysed_plan(frame: DataFrame) -> Any:
    """Spark's own object for a DataFrame."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001  no public way


def jvm_of(spark: SparkSession) -> Any:
    """Entry to the classes of the driver's JVM."""
    return spark._jvm  # noqa: SLF001  no public way


def node_of(told: Mapping[str, Any]) -> PlanNode:
    """A node from its JSON."""
    optional = ("groupings", "view", "reference", "join", "deduplicates")
    rest = {name: told[name] for name in optional if name in told}
    return PlanNode(
        kind=told["kind"],
        is_streaming=told["is_streaming"],
        output=[_expression_of(each) for each in told["output"]],
        expressions=[_expression_of(each) for each in told["expressions"]],
        subqueries=[node_of(each) for each in told["subqueries"]],
        children=[node_of(each) for each in told["children"]],
        **rest,
    )


def _expression_of(told: Mapping[str, Any]) -> PlanExpression:
    children = [_expression_of(each) for each in told.get("children", ())]
    return PlanExpression(**{**told, "children": children})

"""Looks into a plan that Spark has analysed: columns that matter, state, and what may vary.

Everything here reads JVM objects through Py4J; nothing is executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

VIEW_OPTION = "onceflow.view"
"""Option on a stand-in's leaf that tells whose stand-in it is."""

_PASSES_COLUMNS = frozenset(
    {"Filter", "SubqueryAlias", "View", "EventTimeWatermark", "Join", "Generate", "Deduplicate"}
)
"""Nodes that hand every column of their children on and look only at those they reference."""
_HOLDS_NO_DATA = frozenset({"OneRowRelation", "LocalRelation", "Range"})
"""Leaves whose rows stand in the query itself: the same at every replay."""
_KEEPS_STATE = ("Aggregate", "Deduplicate", "Distinct", "WithState", "FlatMapGroups")

_ORDER_DEPENDENT: Mapping[str, str] = {
    "First": "first",
    "Last": "last",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "ListAgg": "listagg",
    "MaxBy": "max_by",
    "MinBy": "min_by",
    "Mode": "mode",
}
"""Aggregates that Catalyst calls deterministic, and whose result follows the order of rows."""
_SUMS = frozenset({"Sum", "Average"})
_INEXACT = frozenset({"float", "double"})
_SORTS = frozenset({"SortArray", "ArraySort"})
_SORTABLE = frozenset({"CollectList", "CollectSet"})
"""Harmless where the result is sorted before anything else sees it."""


@dataclass(frozen=True)
class PlanFacts:
    """What a plan tells.

    Args:
        reads: view -> names of columns that influence the result, once per time it is read.
        foreign: leaves that are neither a view nor written in the query: tables, files.
        is_stateful: whether rows of one batch influence later batches.
        joins_streams: whether two streams are joined.
        varying: functions whose result may differ on a replay, by Catalyst's own word.
        order_dependent: functions whose result may depend on the order of rows.
        python_functions: names of Python functions; nobody can look into those.
        limits: whether the plan takes the first rows only.
    """

    reads: tuple[tuple[str, tuple[str, ...]], ...]
    foreign: tuple[str, ...]
    is_stateful: bool
    joins_streams: bool
    varying: tuple[str, ...]
    order_dependent: tuple[str, ...]
    python_functions: tuple[str, ...]
    limits: bool


def read_plan(frame: DataFrame) -> PlanFacts:
    """Look into the analysed plan of a DataFrame over stand-ins."""
    walk = _Walk()
    root = analysed_plan(frame)
    walk.visit(root, _ids(root.output()))
    return PlanFacts(
        reads=tuple(walk.reads),
        foreign=tuple(walk.foreign),
        is_stateful=any(mark in node for node in walk.nodes for mark in _KEEPS_STATE)
        or walk.joins_streams,
        joins_streams=walk.joins_streams,
        varying=_unique(walk.varying),
        order_dependent=_unique(walk.order_dependent),
        python_functions=_unique(walk.python_functions),
        limits="GlobalLimit" in walk.nodes or "Offset" in walk.nodes,
    )


def analysed_plan(frame: DataFrame) -> Any:
    """Spark's own object behind a DataFrame."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001  no public way


def jvm_of(spark: SparkSession) -> Any:
    """Entry to the classes of the driver's JVM."""
    return spark._jvm  # noqa: SLF001  no public way


def items_of(seq: Any) -> list[Any]:
    """Elements of a Scala `Seq`.

    By index: Python learns the end of an iterator from an exception, and for each one PySpark asks
    the JVM a hundred times which kind it is: 30 ms.
    """
    return [seq.apply(i) for i in range(seq.size())]


def kind_of(tree_node: Any) -> str:
    """Name of the class of a node of any of Spark's trees."""
    name: str = tree_node.getClass().getSimpleName()
    return name.removesuffix("$")


class _Walk:
    """One pass from the result down to the leaves, carrying the columns that matter so far."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, tuple[str, ...]]] = []
        self.foreign: list[str] = []
        self.nodes: set[str] = set()
        self.joins_streams = False
        self.varying: list[str] = []
        self.order_dependent: list[str] = []
        self.python_functions: list[str] = []

    def visit(self, node: Any, needed: AbstractSet[int]) -> None:
        """Look at a node of whose output the columns `needed` matter."""
        kind = kind_of(node)
        children = items_of(node.children())
        self.nodes.add(kind)
        if view := self._view_of_stand_in(children):
            live = [a.name() for a in items_of(node.output()) if a.exprId().id() in needed]
            self.reads.append((view, tuple(live)))
            return
        for expression in items_of(node.expressions()):
            self._look_at(expression, is_sorted=False)
        if kind == "Join" and all(child.isStreaming() for child in children):
            self.joins_streams = True
        if not children and kind not in _HOLDS_NO_DATA:
            self.foreign.append(node.simpleString(80))
        for child in children:
            self.visit(child, self._needed_of_child(node, kind, child, needed))

    def _needed_of_child(
        self, node: Any, kind: str, child: Any, needed: AbstractSet[int]
    ) -> AbstractSet[int]:
        if kind == "Project":
            entries = [e for e in items_of(node.projectList()) if e.exprId().id() in needed]
            return frozenset().union(*(_ids(e.references().toSeq()) for e in entries))
        references = _ids(node.references().toSeq())
        if kind == "Aggregate":
            return references
        if kind in _PASSES_COLUMNS:
            return needed | references
        return _ids(child.output())

    def _view_of_stand_in(self, children: list[Any]) -> str | None:
        """The view, if the only child is the leaf of its stand-in."""
        if len(children) != 1 or kind_of(children[0]) != "StreamingRelationV2":
            return None
        view: str | None = children[0].extraOptions().get(VIEW_OPTION)
        return view

    def _look_at(self, expression: Any, *, is_sorted: bool) -> None:
        kind = kind_of(expression)
        children = items_of(expression.children())
        is_culprit = not expression.deterministic() and all(c.deterministic() for c in children)
        name = expression.name() if "PythonUDF" in kind else expression.prettyName().lower()
        if is_culprit:
            self.varying.append(name)
        elif "PythonUDF" in kind:
            self.python_functions.append(name)
        if kind in _ORDER_DEPENDENT and not (is_sorted and kind in _SORTABLE):
            self.order_dependent.append(_ORDER_DEPENDENT[kind])
        if kind in _SUMS and children[0].dataType().simpleString() in _INEXACT:
            self.order_dependent.append(f"{name} of DOUBLE")
        for child in children:
            self._look_at(child, is_sorted=kind in _SORTS or is_sorted)


def _ids(attributes: Any) -> frozenset[int]:
    """Expression ids of a Scala sequence of attributes."""
    return frozenset(a.exprId().id() for a in items_of(attributes))


def _unique(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))

"""Reads columns, sources and state from an analysed plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.pipeline.plan.plan import PlanNode

_PASSES_COLUMNS = frozenset(
    {
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "Join",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    }
)
"""Nodes that hand every column of their children on and look only at those they reference."""
_HOLDS_NO_DATA = frozenset({"OneRowRelation", "LocalRelation", "Range", "ReferenceRelation"})
"""Leaves whose rows are in the query itself, or recorded with each batch: the same at every
replay."""
_KEEPS_ORDER = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalRelation",
        "OneRowRelation",
        "Project",
        "Range",
        "ReferenceRelation",
        "ResolvedHint",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
"""Nodes that take one row after the other and never exchange rows between tasks. A node that is
not here has not been judged. In a union, rows of one input partition stay in their order."""
_PROBES_WITH: Mapping[bool, frozenset[str]] = {
    True: frozenset({"INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI"}),
    False: frozenset({"INNER", "CROSS", "RIGHT OUTER"}),
}
"""Whether the stream is on the left -> joins that look up its rows in the other side."""
_KEEPS_STATE = ("Aggregate", "Deduplicate", "Distinct", "WithState", "FlatMapGroups")


@dataclass(frozen=True)
class Step:
    """One node on the way from the result down to the leaves."""

    node: PlanNode
    needed: frozenset[int]
    """Its columns that influence the result."""


@dataclass(frozen=True)
class PlanFacts:
    """Facts from a plan.

    Args:
        reads: view -> names of columns that influence the result, once per time it is read.
        looked_up: reference -> names of columns that influence the result, wherever it is read.
        foreign: classes of leaves that are neither a view nor written in the query: tables, files.
        is_stateful: whether rows of one batch influence later batches.
        keeps_order: whether rows that come from one input partition stay in its order.
    """

    reads: tuple[tuple[str, tuple[str, ...]], ...]
    looked_up: Mapping[str, frozenset[str]]
    foreign: tuple[str, ...]
    is_stateful: bool
    keeps_order: bool


def facts_of(root: PlanNode) -> PlanFacts:
    """Walk down once."""
    reads, foreign, is_stateful = [], [], False
    looked_up: dict[str, frozenset[str]] = {}
    for step in walk(root):
        node = step.node
        if view := _view_of_stand_in(node):
            live = tuple(c.name for c in node.output if c.id in step.needed)
            reads.append((view, live))
        elif node.reference:
            live_names = {c.name for c in node.output if c.id in step.needed}
            looked_up[node.reference] = looked_up.get(node.reference, frozenset()) | live_names
        elif not node.children and node.kind not in _HOLDS_NO_DATA:
            foreign.append(node.kind)
        joins_streams = node.kind == "Join" and all(c.is_streaming for c in node.children)
        is_stateful |= joins_streams or any(mark in node.kind for mark in _KEEPS_STATE)
    return PlanFacts(tuple(reads), looked_up, tuple(foreign), is_stateful, _keeps_order(root))


def _keeps_order(node: PlanNode) -> bool:
    if _view_of_stand_in(node):
        return True
    if node.kind == "Join":
        left, right = node.children
        is_judged = left.is_streaming != right.is_streaming
        is_judged &= node.join in _PROBES_WITH[left.is_streaming]
    else:
        is_judged = node.kind in _KEEPS_ORDER
    return is_judged and all(map(_keeps_order, (*node.children, *node.subqueries)))


def walk(root: PlanNode) -> Iterator[Step]:
    """Every node after those that use it, stand-ins without what is below them."""
    waiting = [Step(root, root.output_ids)]
    while waiting:
        step = waiting.pop()
        yield step
        if _view_of_stand_in(step.node):
            continue
        below = [Step(child, _needed_below(step, child)) for child in step.node.children]
        below += [Step(plan, plan.output_ids) for plan in step.node.subqueries]
        waiting += reversed(below)


def made_of(node: PlanNode, column_id: int) -> frozenset[str]:
    """Names of the columns of a view that a column is computed from.

    Args:
        node: has the column; nothing between it and the stand-in of the view has two inputs.
        column_id: which one.
    """
    ids = frozenset({column_id})
    while not _view_of_stand_in(node):
        if node.kind == "Project":
            ids = frozenset().union(*(e.references for e in node.expressions if e.id in ids))
        (node,) = node.children
    return frozenset(column.name for column in node.output if column.id in ids)


def _needed_below(step: Step, child: PlanNode) -> frozenset[int]:
    node = step.node
    if node.kind == "Project":
        live = [each for each in node.expressions if each.id in step.needed]
        return frozenset().union(*(each.references for each in live))
    if node.kind == "Aggregate":
        return node.references
    if node.kind in _PASSES_COLUMNS:
        return step.needed | node.references
    return child.output_ids


def _view_of_stand_in(node: PlanNode) -> str:
    """The view, if the only child is the leaf of its stand-in."""
    return node.children[0].view if len(node.children) == 1 else ""

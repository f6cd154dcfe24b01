"""Spark's analysed plan, judged by effect: what order, layout and chance can do to the result.

A union below a commutative aggregate is harmless; so is `collect_list` if all that anybody sees of
it is sorted. What no column of the result depends on is not judged at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.contracts.source import META_COLUMNS
from onceflow.pipeline.determinism.catalogue import SQL
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.plan.facts import Step, made_of, walk
from onceflow.pipeline.plan.plan import PlanExpression, PlanNode

_TIE_BREAKER = frozenset({"_partition", "_offset"})
"""Columns that no two records of a topic share."""
_PICKS_ONE: Mapping[str, str] = {
    "First": "Use min_by or max_by over what orders the rows, with a tie-breaker.",
    "Last": "Use min_by or max_by over what orders the rows, with a tie-breaker.",
    "AnyValue": "Use min or max.",
    "MaxBy": "Break ties: max_by(x, struct(y, _topic, _partition, _offset)).",
    "MinBy": "Break ties: min_by(x, struct(y, _topic, _partition, _offset)).",
    "Mode": "Use mode(x, true), which takes the lowest of those that are equally frequent.",
}
"""Aggregates that take one row of several, and which one follows their order."""
_COLLECTS = frozenset({"CollectList", "CollectSet", "ListAgg"})
_SKETCHES: Mapping[str, str] = {
    "ApproximatePercentile": "Use percentile, which is exact.",
    "HistogramNumeric": "Count the values of fixed intervals.",
    "ApproxTopK": "Count with GROUP BY.",
    "HllSketchAgg": "Use approx_count_distinct, whose order of rows changes nothing.",
    "KllSketchAggBigint": "Use percentile, which is exact.",
    "KllSketchAggDouble": "Use percentile, which is exact.",
    "KllSketchAggFloat": "Use percentile, which is exact.",
    "ThetaSketchAgg": "Use approx_count_distinct, whose order of rows changes nothing.",
}
_SUMS = frozenset({"Sum", "Average", "TrySum", "TryAverage"})
_MOMENTS = frozenset(
    {
        "Corr",
        "CovPopulation",
        "CovSample",
        "Kurtosis",
        "RegrAvgX",
        "RegrAvgY",
        "RegrIntercept",
        "RegrR2",
        "RegrSXX",
        "RegrSXY",
        "RegrSYY",
        "RegrSlope",
        "Skewness",
        "StddevPop",
        "StddevSamp",
        "VariancePop",
        "VarianceSamp",
    }
)
"""Computed in DOUBLE, whatever their input is."""
_INEXACT = frozenset({"float", "double"})
_BLIND = frozenset(
    {
        "ArrayContains",
        "ArrayMax",
        "ArrayMin",
        "ArraySize",
        "ArraySort",
        "Explode",
        "Size",
        "SortArray",
    }
)
"""What they return does not depend on the order of an array."""
_TRANSPARENT = frozenset({"AggregateExpression", "Alias", "ArrayDistinct", "KnownNotNull"})
"""They hand an array on to the next operator."""
_DRAWS = frozenset({"AesEncrypt"})
"""They draw a random number, although Catalyst does not say so."""
_LIMITS = frozenset({"GlobalLimit", "Offset", "Tail"})
_BY_CHUNKS = frozenset({"MapInPandas", "MapInArrow", "MapPartitions", "MapPartitionsInR"})
_BY_GROUPS = ("FlatMapGroups", "FlatMapCoGroups", "TransformWithState", "MapGroups", "CoGroup")
_DEDUPLICATES = frozenset({"Deduplicate", "DeduplicateWithinWatermark"})


@dataclass(frozen=True)
class PlanFinding:
    """Something in a plan that a replay may compute differently.

    Args:
        name: the function or operator, as the user wrote it.
        reason: why, in one clause.
        is_certain: False if it depends on what the user's function or data are like.
    """

    rule: Rule
    name: str
    reason: str
    fix: str
    is_certain: bool = True


def judge_plan(root: PlanNode) -> list[PlanFinding]:
    """Everything in the plan that order, layout or chance can change, each once."""
    judge = _Judge(set(root.output_ids))
    found = [finding for step in walk(root) for finding in judge.step(step)]
    return list(dict.fromkeys(found))


def python_functions(root: PlanNode) -> list[str]:
    """Names of the Python functions that the plan calls."""
    names = [
        each.name
        for step in walk(root)
        for expression in step.node.expressions
        for each in expression.walk()
        if "PythonUD" in each.kind
    ]
    return list(dict.fromkeys(names))


@dataclass
class _Judge:
    """Goes from the result to the leaves.

    Args:
        exposed: ids of columns whose order may show further up.
    """

    exposed: set[int]

    def step(self, step: Step) -> Iterator[PlanFinding]:
        node = step.node
        yield from _of_operator(step)
        for number, expression in enumerate(node.expressions):
            is_entry = node.kind == "Project" or (
                node.kind == "Aggregate" and number >= node.groupings
            )
            if is_entry and expression.id not in step.needed:
                continue
            is_blind = is_entry and expression.id not in self.exposed
            if not (is_entry and expression.kind == "AttributeReference"):
                yield from self._expression(expression, is_blind=is_blind)

    def _expression(self, expression: PlanExpression, *, is_blind: bool) -> Iterator[PlanFinding]:
        kind, children = expression.kind, expression.children
        if kind == "AttributeReference" and expression.id is not None and not is_blind:
            self.exposed.add(expression.id)
        varies = not expression.is_deterministic and all(c.is_deterministic for c in children)
        if varies or kind in _DRAWS:
            yield _varying(expression)
        yield from _of_aggregate(expression, is_blind=is_blind)
        below = kind in _BLIND or (is_blind and kind in _TRANSPARENT)
        for child in children:
            yield from self._expression(child, is_blind=below)


def _of_operator(step: Step) -> Iterator[PlanFinding]:
    node = step.node
    if node.kind in _LIMITS:
        yield PlanFinding(
            Rule.ND_ORDER,
            "LIMIT" if node.kind != "Offset" else "OFFSET",
            "which rows it takes depends on their order",
            "Filter by a value instead.",
        )
    elif node.kind == "Sample":
        yield PlanFinding(
            Rule.ND_RANDOM,
            "sample",
            "it takes other rows each time",
            "Filter by a hash of the key: `abs(hash(user)) % 100 < 5`.",
        )
    elif node.kind in _BY_CHUNKS:
        yield PlanFinding(
            Rule.ND_LAYOUT,
            node.kind,
            "rows come in pieces that differ from replay to replay",
            "Let the function treat each row by itself.",
            is_certain=False,
        )
    elif any(mark in node.kind for mark in _BY_GROUPS):
        yield PlanFinding(
            Rule.ND_ORDER,
            node.kind,
            "rows of a group come in any order",
            "Sort them in the function, by event time and then _partition and _offset.",
            is_certain=False,
        )
    elif node.deduplicates:
        yield from _of_duplicates(step)
    elif node.kind in _DEDUPLICATES and not step.needed <= node.references:
        yield PlanFinding(
            Rule.ND_ORDER,
            "dropDuplicates",
            "which of several rows stays depends on their order, and they may differ elsewhere",
            "Select only the columns that it compares, or be sure that repeats are equal.",
            is_certain=False,
        )


def _of_duplicates(step: Step) -> Iterator[PlanFinding]:
    """Duplicates are equal but for their places in Kafka, so those may not be looked at."""
    node = step.node
    used = frozenset().union(*(made_of(node, each) for each in step.needed & node.output_ids))
    key = frozenset().union(*(made_of(node, each) for each in node.references))
    if differing := sorted((used - key) & META_COLUMNS.keys()):
        yield PlanFinding(
            Rule.ND_ORDER,
            f"deduplicate of {node.deduplicates}",
            f"which one stays depends on their order, and they differ in {', '.join(differing)}",
            "Use only columns that duplicates have in common.",
        )


def _varying(expression: PlanExpression) -> PlanFinding:
    """Expressions that Catalyst itself calls nondeterministic."""
    name = expression.name.lower()
    rule = SQL.get(name, Rule.ND_RANDOM)
    if rule is Rule.ND_LAYOUT:
        fix = "Use _topic, _partition and _offset, which are the same at every replay."
    else:
        fix = "Derive the value from the row, e.g. a hash of its columns."
    return PlanFinding(rule, name, "gives another result when a batch is replayed", fix)


def _of_aggregate(expression: PlanExpression, *, is_blind: bool) -> Iterator[PlanFinding]:
    kind, name = expression.kind, expression.name
    if kind in _PICKS_ONE and not _has_no_ties(expression):
        reason = "which row it takes depends on their order"
        yield PlanFinding(Rule.ND_AGG, name, reason, _PICKS_ONE[kind])
    elif kind in _COLLECTS and not is_blind and not _is_ordered(expression):
        reason = "its elements come in the order of the rows"
        fix = "Wrap it in sort_array()."
        if kind == "ListAgg":
            fix = "Add WITHIN GROUP (ORDER BY ...) with the expression itself."
        yield PlanFinding(Rule.ND_AGG, name, reason, fix)
    elif kind in _SKETCHES:
        reason = "its error depends on the order of rows"
        yield PlanFinding(Rule.ND_AGG, name, reason, _SKETCHES[kind])
    elif kind in _SUMS and expression.children[0].type in _INEXACT:
        reason = "the last digits of a DOUBLE depend on the order in which it is added up"
        fix = f"Use DECIMAL: {name}(CAST(x AS DECIMAL(38, 9)))."
        yield PlanFinding(Rule.ND_AGG, f"{name} of DOUBLE", reason, fix)
    elif kind in _MOMENTS:
        reason = "it adds up DOUBLEs, whose last digits depend on the order"
        fix = "Compute it from DECIMAL sums of x and x * x, or round it outside of the pipeline."
        yield PlanFinding(Rule.ND_AGG, name, reason, fix)


def _has_no_ties(expression: PlanExpression) -> bool:
    if expression.kind == "Mode":
        return expression.is_ordered
    if expression.kind in {"MaxBy", "MinBy"}:
        return {e.name for e in expression.children[1].walk()} >= _TIE_BREAKER
    return False


def _is_ordered(expression: PlanExpression) -> bool:
    """Whether an aggregate sorts by all that it collects."""
    orders = [child for child in expression.children if child.kind == "SortOrder"]
    sorted_by = frozenset().union(*(order.references for order in orders))
    return bool(orders) and expression.children[0].references <= sorted_by

"""The forecast of what a query keeps, by its plan."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onceflow.aggregates import Sum
from onceflow.columns import parse_columns
from onceflow.pipeline.analysis.state_size import FOREVER, forecast_state, size_text
from onceflow.pipeline.plan.plan import PlanExpression, PlanNode
from onceflow.processing import Aggregated, List, Map, Processor, Value
from onceflow.processing.runner import Runner

WINDOW = PlanExpression(
    "AttributeReference", "window", "struct<start:timestamp,end:timestamp>", id=9
)
PAGE = PlanExpression("AttributeReference", "page", "string", id=1)
AT = PlanExpression("AttributeReference", "at", "timestamp", id=2)
COLUMNS = parse_columns("card string, shop string, amount bigint, at timestamp")


def function(kind: str, of_type: str) -> PlanExpression:
    inner = PlanExpression(kind, kind.lower(), of_type)
    return PlanExpression("Alias", "x", of_type, 5, children=[
        PlanExpression("AggregateExpression", "", of_type, children=[inner])
    ])  # fmt: skip


def source() -> PlanNode:
    return PlanNode("EventTimeWatermark", is_streaming=True, output=[PAGE, AT], expressions=[AT])


def aggregate(*expressions: PlanExpression, groupings: int) -> PlanNode:
    return PlanNode(
        "Aggregate",
        is_streaming=True,
        expressions=expressions,
        groupings=groupings,
        children=[source()],
    )


def join(condition: PlanExpression | None) -> PlanNode:
    expressions = [condition] if condition else []
    sides = [source(), source()]
    return PlanNode("Join", is_streaming=True, expressions=expressions, children=sides)


def texts(plan: PlanNode, processors: Mapping[str, Runner] | None = None) -> list[str]:
    return [each.text() for each in forecast_state(plan, processors or {}, 5_000)]


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            aggregate(PAGE, WINDOW, function("Count", "bigint"), groupings=2),
            ["aggregation: a row for each page and window, kept until 5 s after the end of its"],
        ),
        (
            aggregate(PAGE, function("CollectList", "array<int>"), groupings=1),
            [f"a row for each page, {FOREVER}; a row takes about 64 bytes, and more for each"],
        ),
        (aggregate(function("Count", "bigint"), groupings=0), ["one row, and no other"]),
        (join(None), 2 * [f": a row for each row, {FOREVER}"]),
        (join(AT), ["left: a row for each row, kept until 5 s", "right: a row for each row, kept"]),
        (
            PlanNode("Deduplicate", True, expressions=[PAGE], children=[source()]),
            [f"deduplication: a row for each page, {FOREVER}"],
        ),
        (source(), []),
    ],
)  # fmt: skip
def test_what_bounds_the_rows_is_told(plan: PlanNode, told: list[str]) -> None:
    found = texts(plan)
    assert len(found) == len(told)
    for text, part in zip(found, told, strict=True):
        assert part in text


def test_more_columns_take_more_bytes() -> None:
    few = aggregate(PAGE, WINDOW, function("Count", "bigint"), groupings=2)
    many = aggregate(
        PAGE, WINDOW, function("Count", "bigint"), function("Average", "double"), groupings=2
    )
    sizes = [next(forecast_state(plan, {}, 0)).bytes for plan in (few, many)]
    assert sizes == [80, 96]


class Kept(Processor):
    total = Value("n bigint, sum decimal(20,2)")
    sums = Aggregated(Sum("bigint"))
    recent = List("bigint", ttl="1 hour")
    shops = Map("string", "bigint")


class Ending(Processor):
    last = Value("timestamp", ttl="1 hour")
    shops = Map("string", "bigint", ttl="2 days")


def test_processors_tell_what_their_keys_take() -> None:
    kept = Runner("kept", Kept, COLUMNS, ("card",), "at", COLUMNS, when="watermark")
    ending = Runner("ending", Ending, COLUMNS, ("card", "shop"), "at", COLUMNS)
    forever, ends = texts(source(), {"kept": kept, "ending": ending})
    assert "state of kept: a row for each card, kept until the class has cleared all" in forever
    assert "each entry of recent (about 12 bytes) and each entry of shops (about 20" in forever
    assert "each record that waits (5 s or longer)" in forever
    assert "a row for each card and shop, kept for at most 2 d after its last change" in ends


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (88_000_000, "88 MB"), (5e15, "5e+03 TB")]
)
def test_sizes_are_told_in_words(size: float, text: str) -> None:
    assert size_text(size) == text

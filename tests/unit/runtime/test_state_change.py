"""A changed query goes on with the state of the same operators only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceflow.pipeline.plan.operators import StateOperator
from onceflow.runtime.state.change import compare_operators

VIEWS = StateOperator(
    0,
    "stateStoreSave",
    ["clicks.page", "window(clicks.at, 1m)"],
    ["page string", "window struct<start:timestamp,end:timestamp>"],
    ["count(1)"],
    ["count bigint"],
)
USERS = replace(VIEWS, operator=1, by=["clicks.user", "window(clicks.at, 1m)"])
ONCE = StateOperator(1, "dedupe", ["clicks.id"], ["id string"], [], [])


def test_what_is_kept_is_told_with_what_its_meaning_becomes() -> None:
    assert str(compare_operators([VIEWS], [VIEWS])["aggregation"]) == (
        "kept: aggregation of count(1) by clicks.page, window(clicks.at, 1m)"
    )
    longer = replace(VIEWS, by=["clicks.page", "window(clicks.at, 2m)"])
    told = str(compare_operators([VIEWS, ONCE], [longer, ONCE])["aggregation"])
    assert told.endswith("; window(clicks.at, 1m) becomes window(clicks.at, 2m)")


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([replace(VIEWS, value=["count int"])], "value column 1 is count bigint, and would be"),
        ([replace(VIEWS, value=["count bigint", "sum bigint"])], "column 2, sum bigint, is new"),
        ([replace(VIEWS, value=[])], "value column 1, count bigint, is gone"),
        ([replace(VIEWS, key=["user string"])], "key column 1 is page string, and would be user"),
        ([], "aggregation of count(1) by clicks.page, window(clicks.at, 1m) is gone"),
        ([VIEWS, ONCE], "deduplication by clicks.id is new, and has no state"),
        ([replace(ONCE, operator=0)], "deduplication by clicks.id is new"),
    ],
)
def test_other_columns_and_other_operators_are_refused(
    after: list[StateOperator], why: str
) -> None:
    told = compare_operators([VIEWS], after)
    assert why in "; ".join(text for each in told.values() for text in each.refused)


def test_operators_that_change_places_are_refused_although_their_columns_are_alike() -> None:
    swapped = [replace(USERS, operator=0), replace(VIEWS, operator=1)]
    told = compare_operators([VIEWS, USERS], swapped)
    assert [*told] == ["aggregation-0", "aggregation-1"]
    assert all("would go on with the state of" in each.refused[0] for each in told.values())
    (order,) = compare_operators(
        [VIEWS, ONCE], [replace(ONCE, operator=0), replace(VIEWS, operator=1)]
    ).values()
    assert order.refused == ["aggregation, deduplication would be deduplication, aggregation"]

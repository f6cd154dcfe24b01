"""The state that Spark will keep for a query is known before it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceflow.pipeline.analysis.analysis import Analysis
from tests.support.pipelines import CLICKS, ORDERS

MINUTE = "window(at, '1 minute')"


def test_an_aggregation_is_told_by_its_columns_and_by_what_they_are(
    analysed: Callable[..., Analysis],
) -> None:
    query = (
        "SELECT u, window.start AS start, count(*) AS n, sum(ms) FILTER (WHERE ms > 3) AS total"
        f" FROM (SELECT upper(user) AS u, ms, at FROM clicks) GROUP BY u, {MINUTE}"
    )
    (found,) = analysed(query, sources=CLICKS).operators()
    assert found.by == ["upper(clicks.user)", "window(clicks.at, 1m)"]
    assert found.computes == ["count(1)", "sum(clicks.ms) WHERE (clicks.ms > 3L)"]
    assert found.key == ["u string", "window struct<start:timestamp,end:timestamp>"]
    assert found.value == ["count bigint", "sum bigint"]


@pytest.mark.parametrize(
    ("window", "told"),
    [
        ("window(at, '10 minutes', '5 minutes')", "window(clicks.at, 5m, 10m)"),
        ("session_window(at, '5 minutes')", "window(clicks.at, 5m)"),
    ],
)
def test_windows_are_told_by_their_lengths(
    analysed: Callable[..., Analysis], window: str, told: str
) -> None:
    (found,) = analysed(
        f"SELECT user, count(*) AS n FROM clicks GROUP BY user, {window}"
    ).operators()
    assert found.by[-1] == told


def test_a_column_that_nothing_looks_at_is_not_kept(analysed: Callable[..., Analysis]) -> None:
    inner = f"SELECT user, count(*) AS n, sum(ms) AS total FROM clicks GROUP BY user, {MINUTE}"
    (counted,) = analysed(f"SELECT user, n FROM ({inner})").operators()
    (summed,) = analysed(f"SELECT user, total FROM ({inner})").operators()
    assert (counted.value, summed.value) == (["count bigint"], ["sum bigint"])


def test_the_sides_of_a_join_are_told_apart(analysed: Callable[..., Analysis]) -> None:
    query = (
        "SELECT c.user, cents FROM clicks AS c JOIN orders AS o ON c.user = o.user"
        " AND o._event_time BETWEEN c.at AND c.at + INTERVAL 1 MINUTE"
    )
    (found,) = analysed(query, sources=CLICKS + ORDERS).operators()
    assert found.by == ["left clicks.user", "right orders.user"]
    assert "right cents int" in found.value
    assert found.computes[-1] == "INNER"

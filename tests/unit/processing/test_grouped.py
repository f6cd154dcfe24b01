"""The processor that merges accumulators of groups, and closes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow.aggregates import CollectSet, Count
from onceflow.columns import parse_columns
from onceflow.processing.checks import make_runner
from onceflow.processing.grouped import grouped
from onceflow.processing.runner import Handled, Runner

CLOSES = datetime(2026, 1, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def runner(*, emits_updates: bool) -> Runner:
    kind = grouped(["k0"], [Count("string"), CollectSet("string")], emits_updates=emits_updates)
    return make_runner(
        kind,
        name="aggregates_1",
        columns=parse_columns(
            "k0 string, closes timestamp, at timestamp, r0 bigint, r1 array<string>"
        ),
        key="k0",
        time="at",
        output="k0 string, r0 bigint, r1 array<string>",
    )


def handled(
    made: Runner, state: bytes | None, *accs: tuple[int, list[str]], at: datetime = EPOCH
) -> Handled:
    before = CLOSES - timedelta(milliseconds=1)
    rows: list[tuple[Any, ...]] = [(None, CLOSES, before, *acc) for acc in accs]
    return made.handle((None,), state, rows, (at - EPOCH) // timedelta(milliseconds=1))


def test_a_group_is_emitted_once_when_it_closes_and_forgotten() -> None:
    made = runner(emits_updates=False)
    first = handled(made, None, (2, ["a"]), (1, ["b"]))
    second = handled(made, first.state, (1, ["a", "c"]), at=CLOSES - timedelta(milliseconds=1))
    assert (first.rows, second.rows) == ([], [])
    closed = handled(made, second.state, at=CLOSES)
    assert closed.rows == [(None, 4, ["a", "b", "c"], None)]
    assert closed.state is None


def test_updates_leave_with_each_change_and_none_with_the_end() -> None:
    made = runner(emits_updates=True)
    first = handled(made, None, (2, ["a"]))
    second = handled(made, first.state, (1, ["b"]))
    assert first.rows == [(None, 2, ["a"], None)]
    assert second.rows == [(None, 3, ["a", "b"], None)]
    closed = handled(made, second.state, at=CLOSES)
    assert (list(closed.rows), closed.state) == ([], None)


@pytest.mark.parametrize("emits_updates", [True, False])
def test_the_state_says_which_aggregates_it_is_of(emits_updates: bool) -> None:
    declared = runner(emits_updates=emits_updates).declared
    assert declared["r0"]["kind"] == "Count aggregate"

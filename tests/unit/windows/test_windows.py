"""Windows: what is refused before the start, what is kept, and what a change makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onceflow.aggregates import Count, Histogram, LastByTime, Max, Sum
from onceflow.aggregates.laws import check_laws
from onceflow.columns import parse_columns
from onceflow.errors import ConfigError, RecordError
from onceflow.processing import ProcessorHarness
from onceflow.processing.checks import make_runner
from onceflow.processing.evolution import compare_state
from onceflow.processing.runner import EPOCH, Runner
from onceflow.windows import (
    CountWindow,
    Result,
    RunningTotals,
    SlidingWindow,
    StateWindow,
    TimerWindow,
)
from onceflow.windows.result import Together
from tests.support.histories import COLUMNS, at

TOTAL = Result(Sum("bigint"), of="amount")
CONDITIONS = {"open": lambda self, record: True, "close": lambda self, record: False}


def made(base: type, **choices: Any) -> Any:
    return type("Made", (base,), {"key": "card", "total": TOTAL, **choices})


def harness(kind: Any, columns: str = COLUMNS, **choices: Any) -> ProcessorHarness:
    return ProcessorHarness(kind, columns, event_time="at", **choices)


def payment(seconds: float, amount: int | None = 1, card: str = "a") -> dict[str, Any]:
    return {"card": card, "amount": amount, "at": at(seconds)}


@pytest.mark.parametrize(
    ("base", "choices", "texts"),
    [
        (CountWindow, {}, ["Made: size is nothing; expected a whole number from 1 on"]),
        (CountWindow, {"size": 0, "every": -1}, ["size is 0", "every is -1"]),
        (CountWindow, {"size": True}, ["size is True"]),
        (CountWindow, {"size": 2, "ttl": "-1 s"}, ["ttl is not a duration"]),
        (SlidingWindow, {}, ["Made: length is not a duration"]),
        (SlidingWindow, {"length": "0 s"}, ["length is nothing; expected more"]),
        (SlidingWindow, {"length": "-5 minutes"}, ["length is not a duration"]),
        (SlidingWindow, {"length": "1 h", "ttl": "1 h"}, ["records are kept for `length`"]),
        (StateWindow, {}, ["Made has no open; expected def open(self, record)", "no close"]),
        (StateWindow, {**CONDITIONS, "timeout": "soon"}, ["timeout is not a duration"]),
        (StateWindow, {**CONDITIONS, "ttl": "1 h"}, ["can have no `ttl`. Leave it out"]),
        (TimerWindow, {"every": "0 ms"}, ["every is nothing"]),
        (TimerWindow, {"every": "1 h", "empty": -1}, ["empty is -1; expected a whole number from"]),
        (TimerWindow, {"every": "1 h", "ttl": "1 h"}, ["what is kept ends with its period"]),
        (TimerWindow, {"every": "1 d", "zone": "Berlin"}, ["there is no zone 'Berlin'; expected"]),
        (TimerWindow, {"every": "1 d", "zone": "../etc"}, ["there is no zone '../etc'"]),
        (
            TimerWindow,
            {"every": "36 h", "zone": "Europe/Berlin"},
            ["periods of 1 day, 12:00:00, not of whole days; expected whole days"],
        ),
        (RunningTotals, {"output": "n bigint"}, ["a window has no `output` of its own"]),
        (RunningTotals, {"total": 1}, ["a window without results; expected one at least"]),
        (RunningTotals, {"kept": TOTAL}, ["a result cannot be called `kept`"]),
        (RunningTotals, {"card": TOTAL}, ["the column `card` is there twice"]),
        (RunningTotals, {"n": Result(Count(), of="crd")}, ["called `crd`. Did you mean `card`?"]),
        (
            RunningTotals,
            {"n": Result(Sum("int"), of="amount")},
            ["Made.n: Sum takes int, and `amount` is bigint. Declare the aggregate for this"],
        ),
        (RunningTotals, {"key": "amounts"}, ["no column of the input is called `amounts`"]),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(
    base: type, choices: dict[str, Any], texts: Sequence[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        harness(made(base, **choices))
    for text in texts:
        assert text in str(refused.value)


def test_names_that_python_has_not_and_keys_with_parts_are_refused() -> None:
    columns = "card struct<n:int>, `to pay` bigint, _n bigint, at timestamp"
    kind = made(
        RunningTotals,
        total=Result(Sum("bigint"), of="to pay"),
        other=Result(Sum("bigint"), of="_n"),
    )
    with pytest.raises(ConfigError) as refused:
        harness(kind, columns)
    assert "`to pay` is not a name in Python. Give the column another name" in str(refused.value)
    assert "`_n` is not a name in Python" in str(refused.value)
    assert "`card` is struct<n:int>; expected columns without parts" in str(refused.value)


@pytest.mark.parametrize(
    ("aggregate", "of", "text"),
    [
        (1, "amount", "expected an onceflow.aggregates.Aggregate, found int"),
        (
            Max("a int, b int"),
            ("a", "b", "c"),
            "expected 2 columns for a int, b int, found a, b, c",
        ),
        (Sum("int"), ("a", "b"), "Sum: expected 1 columns for int, found a, b"),
    ],
)
def test_a_result_that_cannot_be_is_refused(aggregate: Any, of: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Result(aggregate, of=of)


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="strin"):
        Result(Count("strin"), of="amount")


def test_results_together_keep_the_laws() -> None:
    both = {"n": Result(Count("int"), of="a"), "sum": Result(Sum("int"), of="a")}
    assert check_laws(Together(both)) == []


def test_a_row_has_the_key_the_window_and_the_results() -> None:
    kind = made(
        RunningTotals,
        key=("card", "amount"),
        last=Result(LastByTime("string"), of=("at", "card")),
        bins=Result(Histogram("bigint", [5]), of="amount"),
    )
    (row,) = harness(kind).send(payment(1, 7))
    assert list(row.items()) == [
        ("card", "a"),
        ("amount", 7),
        ("window_start", at(1)),
        ("window_end", at(1)),
        ("total", 7),
        ("last", "a"),
        ("bins", [0, 1]),
    ]


def test_nulls_count_as_records_and_not_as_values() -> None:
    run = harness(made(CountWindow, size=2, n=Result(Count("bigint"), of="amount")))
    (row,) = run.send(payment(1, None), payment(2, 5))
    assert (row["total"], row["n"]) == (5, 1)


def test_a_condition_that_fails_names_the_class_and_its_line() -> None:
    class Fussy(StateWindow):
        key = "card"
        total = TOTAL

        def open(self, record: Any) -> bool:
            raise ValueError("cannot tell")

        def close(self, record: Any) -> bool:
            return False

    with pytest.raises(RecordError, match=r"Fussy failed.*ValueError: cannot tell \(line"):
        harness(Fussy).send(payment(1))


@pytest.mark.parametrize(
    ("base", "choices"),
    [
        (CountWindow, {"size": 1}),
        (CountWindow, {"size": 3, "ttl": "10 s"}),
        (SlidingWindow, {"length": "10 s"}),
        (StateWindow, {**CONDITIONS, "timeout": "10 s"}),
        (TimerWindow, {"every": "10 s", "empty": 2}),
        (RunningTotals, {"ttl": "10 s"}),
    ],
)
def test_in_the_end_nothing_is_kept(base: type, choices: dict[str, Any]) -> None:
    run = harness(made(base, **choices))
    run.send(payment(1), payment(2), payment(3))
    run.advance(at(60))
    assert run.keys == []


def test_a_window_that_was_closed_leaves_no_timer() -> None:
    def closes(self: Any, record: Any) -> bool:
        return bool(record.amount == 2)

    run = harness(made(StateWindow, **{**CONDITIONS, "close": closes}, timeout="1 h"))
    assert len(run.send(payment(1), payment(2, 2))) == 1
    assert run.keys == []


def test_a_sliding_window_keeps_no_more_than_its_length() -> None:
    run = harness(made(SlidingWindow, length="10 s"))
    for second in range(100):
        run.send(payment(second))
        assert len(run.state("a")["values"]) <= 10


def runner(kind: Any) -> Runner:
    columns = parse_columns(COLUMNS)
    return make_runner(kind, name="step", columns=columns, key=None, time="at", output=None)


def changed(before: Any, after: Any) -> tuple[Runner, Runner]:
    """A class, and what becomes of it, with the state of the first."""
    old, new = runner(before), runner(after)
    assert not compare_state(old.declared, new.declared).refused
    return old, replace(new, earlier=(old.codec.schema,))


def after_a_change(before: Any, after: Any, amounts: Sequence[int]) -> list[Any]:
    """Rows of the last of some payments, a second apart: a class handles it with kept state."""
    old, new = changed(before, after)
    rows = [("a", amount, at(second)) for second, amount in enumerate(amounts)]
    kept = old.handle(("a",), None, rows[:-1], 0).state
    return [row[3:-1] for row in new.handle(("a",), kept, rows[-1:], 0).rows]


def bins(bound: int) -> Result:
    return Result(Histogram("bigint", [bound]), of="amount")


def test_after_a_change_a_result_goes_on_and_others_start_again() -> None:
    before = made(RunningTotals, bins=bins(1))
    after = made(RunningTotals, bins=bins(2), n=Result(Count("bigint"), of="amount"))
    assert after_a_change(before, after, [5, 6, 7]) == [(18, [0, 1], 1)]


def test_a_sliding_window_that_can_take_values_back_after_a_change_has_all_of_them() -> None:
    largest = Result(Max("bigint"), of="amount")
    before = made(SlidingWindow, length="3 s", largest=largest)
    after = made(SlidingWindow, length="3 s")
    assert after_a_change(before, after, [1, 2, 3, 4, 5]) == [(12,)]
    assert after_a_change(after, before, [1, 2, 3, 4, 5]) == [(12, 5)]


def test_a_count_window_starts_again_after_a_change_of_its_numbers() -> None:
    before, after = made(CountWindow, size=3), made(CountWindow, size=1, every=2)
    assert after_a_change(before, before, [1, 2, 3]) == [(6,)]
    assert after_a_change(before, after, [1, 2, 3]) == [(3,)]


def test_a_state_window_ends_by_the_time_out_of_the_changed_class() -> None:
    before, after = (made(StateWindow, **CONDITIONS, timeout=f"{n} s") for n in (10, 30))
    old, new = changed(before, after)

    def ms(second: int) -> int:
        return (at(second) - EPOCH) // timedelta(milliseconds=1)

    kept = old.handle(("a",), None, [("a", 1, at(0))], 0).state
    early = new.handle(("a",), kept, [], ms(10))
    assert (early.rows, early.wake_ms) == ([], ms(30))
    ended = new.handle(("a",), early.state, [], ms(30))
    assert [row[1:3] for row in ended.rows] == [(at(0), at(30))]
    assert ended.state is None

"""Refusals of a class, before anything runs: all faults at once."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from onceflow.errors import ConfigError
from onceflow.processing import List, Processor, ProcessorHarness, Value

INPUT = "card string, level double, tags array<string>, at timestamp"


def nothing(self: Any, key: Any, records: Any) -> None:
    """Handle no record."""


def twice() -> type[Processor]:
    class Twice(Processor):
        key = "card"
        output = "n int"
        total = Value("int")
        total = List("int")  # type: ignore[assignment]  # noqa: PIE794
        on_records = nothing

    return Twice


def again() -> type[Processor]:
    class Base(Processor):
        total = Value("int")

    class Again(Base):
        key = "card"
        output = "n int"
        total = List("int")  # type: ignore[assignment]
        on_records = nothing

    return Again


def made(**attributes: Any) -> Callable[[], type[Processor]]:
    given = {"key": "card", "output": "n int", "on_records": nothing, **attributes}
    return lambda: types.new_class("Made", (Processor,), exec_body=lambda body: body.update(given))


@pytest.mark.parametrize(
    ("kind", "choices", "text"),
    [
        (twice, {}, "the state `total` is declared twice"),
        (again, {}, "the state `total` is declared twice"),
        (made(total=Value("color")), {}, "Made.total|color"),
        (made(total=Value("int", default="x")), {}, "expected int, found str 'x'"),
        (made(total=Value("int", ttl="soon")), {}, "ttl is not a duration; expected a number"),
        (made(timers=Value("int")), {}, "a state cannot be called `timers`"),
        (made(_total=Value("int")), {}, "a state cannot be called `_total`"),
        (made(key="cart"), {}, "Did you mean `card`"),
        (made(key=()), {}, "nothing says what records are grouped by"),
        (made(key="level"), {}, "cannot be grouped by `level`, which is double"),
        (made(key=("card", "tags")), {}, "cannot be grouped by `tags`, which is array<string>"),
        (made(output=""), {}, "nothing says which columns come out"),
        (made(output="n integr"), {}, "expected a type"),
        (made(__init__=lambda self, model: None), {}, "cannot be made: .*model"),
        (made(__init__=lambda self: setattr(self, "n", 1)), {}, "Made.n cannot be set"),
        (made(on_records=Processor.on_records), {}, "has no on_records"),
        (made(), {"event_time": "att"}, "Did you mean `at`"),
        (made(), {"order": ["crad"]}, "Did you mean `card`"),
        (made(output="__x int"), {}, "a column of the output cannot be called `__x`"),
        (lambda: dict, {}, "is not a processor"),
        (lambda: nothing, {}, "is not a processor"),
    ],
)
def test_a_class_that_cannot_be_a_processor(
    kind: Callable[[], Any], choices: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        ProcessorHarness(kind(), INPUT, **{"event_time": "at", **choices})


def test_all_faults_are_told_at_once() -> None:
    kind = made(key="cart", output="", total=Value("color"))()
    with pytest.raises(ConfigError) as caught:
        ProcessorHarness(kind, "card string, at timestamp", event_time="at")
    assert len(caught.value.faults) == 3

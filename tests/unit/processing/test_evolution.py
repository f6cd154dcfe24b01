"""State under a changed class: what is kept, added, dropped and refused, and that it is so."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

import pytest

from onceflow.columns import parse_columns
from onceflow.processing import List, Map, Processor, Value
from onceflow.processing.checks import make_runner
from onceflow.processing.evolution import compare_state
from onceflow.processing.runner import EPOCH, Runner


def nothing(self: Any, key: Any, records: Any) -> None:
    """Handle no record."""


def runner(**state: Any) -> Runner:
    body = {"key": "k", "output": "n int", "on_records": nothing, **state}
    kind: Any = types.new_class("Changed", (Processor,), exec_body=lambda made: made.update(body))
    return make_runner(
        kind,
        name="s",
        columns=parse_columns("k int, at timestamp"),
        key=None,
        time="at",
        output=None,
    )


BEFORE: dict[str, Any] = {
    "n": Value("int"),
    "pair": Value("a int, b string"),
    "items": List("decimal(4,2)"),
    "seen": Map("string", "int", ttl="1 h"),
    "gone": Value("int"),
}


def test_each_part_is_told() -> None:
    after = {
        "n": Value("bigint"),
        "pair": Value("a bigint, c double"),
        "items": List("decimal(10,4)"),
        "seen": Map("string", "int", ttl="2 h"),
        "new": Value("int", default=7),
    }
    found = compare_state(runner(**BEFORE).declared, runner(**after).declared)
    assert found.refused == []
    assert found.added == ["new"]
    assert found.dropped == ["gone"]
    assert found.kept[1] == "n: int becomes bigint"
    assert len(found.kept) == 4


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("n", Value("string"), "int cannot become string"),
        ("n", Value("smallint"), "int cannot become smallint"),
        ("n", Value("float"), "int cannot become float"),
        ("n", Value("decimal(9,0)"), "cannot become"),
        ("n", List("int"), "a value cannot become a list"),
        ("n", Value("int", ttl="1 h"), "a time to live cannot be added"),
        ("pair", Value("a int, d int not null"), "cannot become"),
        ("pair", Value("a string, b string"), "cannot become"),
        ("items", List("decimal(4,1)"), "cannot become"),
        ("seen", Map("string", "int"), "a time to live cannot be removed"),
        ("seen", Map("int", "int", ttl="1 h"), "keys of entries cannot change"),
    ],
)
def test_what_would_lose_values_is_refused(name: str, state: Any, text: str) -> None:
    found = compare_state(runner(**BEFORE).declared, runner(**{**BEFORE, name: state}).declared)
    assert len(found.refused) == 1
    assert text in found.refused[0]


class Before(Processor):
    key = "k"
    output = "n int"
    n = Value("int")
    pair = Value("a int, b string")
    items = List("int")
    seen = Map("string", "int")

    def on_records(self, key: Any, records: Any) -> None:
        self.n.set(5)
        self.pair.set(a=1, b="x")
        self.items.extend([1, 2])
        self.seen["x"] = 3


class After(Processor):
    key = "k"
    output = "n int"
    n = Value("bigint")
    pair = Value("a double, c int")
    items = List("decimal(12,1)")
    seen = Map("string", "bigint")
    new = Value("int", default=7)

    def on_records(self, key: Any, records: Any) -> None:
        """Only write it again."""


def test_state_is_read_by_the_changed_class_and_written_anew_in_its_form() -> None:
    columns = parse_columns("k int, at timestamp")
    old, new = (
        make_runner(kind, name="s", columns=columns, key=None, time="at", output=None)
        for kind in (Before, After)
    )
    assert compare_state(old.declared, new.declared).refused == []
    state = old.handle((1,), None, [(1, EPOCH)], -1).state
    new = replace(new, earlier=(old.codec.schema,))
    changed = new.handle((1,), state, [(1, EPOCH)], -1).state
    assert changed is not None
    view = new.view(changed, EPOCH)
    assert view == {"n": 5, "pair": (1.0, None), "items": [1, 2], "seen": {"x": 3}, "new": 7}
    alone = make_runner(After, name="s", columns=columns, key=None, time="at", output=None)
    assert alone.view(changed, EPOCH) == view

"""YAML as people mean it, with the line of everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.pipeline.text.yaml_text import Place, parse_yaml, with_texts


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("1e3", "1e3"),
        ("0x1F", "0x1F"),
        (".inf", ".inf"),
        ("2026-11-01", "2026-11-01"),
        ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("10 seconds", "10 seconds"),
        ("'7'", "7"),
        ("=", "="),
        ("true", True),
        ("False", False),
        ("7", 7),
        ("-3", -3),
        ("0", 0),
        ("200_000", 200_000),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
    ],
)
def test_plain_values_are_what_they_look_like(written: str, meant: Any) -> None:
    value = parse_yaml(f"key: {written}\n").data["key"]

    assert value == meant
    assert type(value) is type(meant)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_yaml("on: a\n5: b\nnull: c\n").data == {"on": "a", "5": "b", "null": "c"}


def test_every_value_has_its_place() -> None:
    document = parse_yaml(
        "a:\n  b: 1\n\n  c:\n    - x\n    - y: 2\nquery: |\n  SELECT 1\n  FROM t\n"
    )

    assert document.place(("a", "b")) == Place(2, 2)
    assert document.place(("a", "c", 1, "y")) == Place(6, 6)
    assert document.place(("query",)) == Place(7, 8)


def test_what_has_no_place_is_where_its_surroundings_are() -> None:
    document = parse_yaml("a:\n  b: 1\n")

    assert document.place(("a", "missing", "deeper")).line == 1
    assert document.place(("a", "b", "c")).line == 2
    assert document.place(()).line == 1


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", None, "the file is empty"),
        ("# nothing but a comment\n", None, "the file is empty"),
        ("a: 1\nb: [1, 2\n", 3, "not YAML that is understood here: "),
        ("a: 1\n\tb: 2\n", 2, "not YAML that is understood here: "),
        ("a: &x 1\nb: *x\n", 1, "not YAML that is understood here: anchors and aliases"),
        ("a: !!python/object:os.system x\n", 1, "the tag tag:yaml.org,2002:python/object"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML that is understood here: "),
        ("a: 1\nb: \x07\n", 2, "a character that YAML does not allow"),
        ("a:\nb: 1\n", 1, "no value"),
        ("a: ~\n", 1, "no value"),
        ("? [x, y]\n: 1\n", 1, "a key that is not text"),
        ("[" * 5000, None, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_yaml_of_ours_is_told_in_words(text: str, line: int | None, what: str) -> None:
    (fault,) = parse_yaml(text).faults

    assert fault.what.startswith(what)
    assert fault.line == line


def test_a_key_that_stands_twice_names_both_lines() -> None:
    (fault,) = parse_yaml("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n").faults

    assert (fault.what, fault.where, fault.line) == (
        "`c` is here twice, first in line 3",
        "b.c",
        5,
    )


def test_all_faults_that_can_be_seen_are_seen_at_once() -> None:
    faults = parse_yaml("a: 1\na: 2\nb:\nc: !x y\n").faults

    assert [fault.line for fault in faults] == [2, 3, 4]


@given(st.text(alphabet=st.sampled_from(" \n:-[]{}#&*!|>'\"%@`,?aon1:\t~"), max_size=60))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    document = parse_yaml(text)

    assert document.data is not None or document.faults


def test_texts_are_replaced_where_they_stand_and_nothing_else() -> None:
    text = "name: views # mine\nsink: {kafka: {topic: 'out', key: name}}\ntopic: out\n"
    changed = with_texts(text, {("name",): "b-2", ("sink", "kafka", "topic"): 'a "b": #c'})
    assert changed == (
        'name: "b-2" # mine\nsink: {kafka: {topic: "a \\"b\\": #c", key: name}}\ntopic: out\n'
    )
    assert parse_yaml(changed).data["sink"]["kafka"]["topic"] == 'a "b": #c'

"""Answers as they are recorded: checked, trimmed, put into the record without touching the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.columns import parse_columns
from onceflow.enrichment.answers import Answer, AnswerReader, require_room, with_answer
from onceflow.enrichment.cache import AnswerCache

READER = AnswerReader(
    parse_columns(
        "rate DECIMAL(20,10) NOT NULL, x DOUBLE, day DATE,"
        " who STRUCT<name: STRING NOT NULL, tags: ARRAY<STRING>>, m MAP<STRING, INT>"
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_an_answer_keeps_its_digits_and_loses_what_is_not_declared() -> None:
    found = READER.read(
        b'{"more": [[[1]]], "rate": 1.1000000000, "x": 0.1, "day": "2026-11-27",'
        b' "who": {"name": "\\u00e4", "age": 3, "tags": ["a", null]}, "m": {"k": 7}}'
    )
    assert found.decode() == (
        '{"rate":1.1000000000,"x":0.1,"day":"2026-11-27",'
        '"who":{"name":"ä","tags":["a",null]},"m":{"k":7}}'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "in JSON"),
        (b"{", "in JSON"),
        (b"[" * 100_000, "in JSON"),
        (b'{"rate": ' + b"[" * 100_000, "in JSON"),
        (b'{"rate": NaN}', "NaN is not JSON"),
        (b'{"rate": 1, "rate": 2}', "is there twice"),
        (b'{"rate": 1, "x": 1e400}', "too large"),
        (b'{"rate": 1}\xff', "in JSON"),
        ('{"rate": 1}'.encode("utf-16"), "in JSON"),
        (b"[1]", "a JSON object, found list"),
        (b"{}", "answer, rate: expected a value, found null"),
        (b'{"rate": null}', "found null"),
        (b'{"rate": "1"}', "answer, rate: expected decimal(20,10), found str"),
        (b'{"rate": true}', "found bool"),
        (b'{"rate": 1.12345678901}', "too many digits"),
        (b'{"rate": 1, "day": "soon"}', "answer, day: expected date"),
        (b'{"rate": 1, "who": {}}', "name: expected a value"),
        (b'{"rate": 1, "who": {"name": "a", "tags": [1]}}', "answer, who"),
        (b'{"rate": 1, "who": {"name": "\\ud800"}}', "surrogate"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=r"expected|twice|NaN") as refused:
        READER.read(text)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 400


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from(["", " ", "\n\t "]), JSON)
def test_a_record_keeps_every_field_and_gets_the_answer(
    fields: dict[str, object], space: str, answer: object
) -> None:
    fields.pop("answer", None)
    value = (space + json.dumps(fields, indent=1) + space).encode()
    require_room(value, "answer")
    text = with_answer(value, "answer", Answer(json.dumps(answer).encode(), 0))
    assert json.loads(text) == {**fields, "answer": answer}
    assert [*json.loads(text)] == [*fields, "answer"]


def test_a_record_is_carried_on_to_the_byte() -> None:
    value = b'{"a": 1.10, "b":1e2 ,"a\\u0041": "x"}\n'
    assert (
        with_answer(value, "r", Answer(b"{}", 0)) == b'{"a": 1.10, "b":1e2 ,"a\\u0041": "x","r":{}}'
    )
    assert with_answer(b" {} ", "r", Answer(b"null", 0)) == b'{"r":null}'


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 1}'.encode("utf-16-le"),
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-8-sig"),
        b'{"r": 1}',
        b'{"\\u0072": 1}',
    ],
)
def test_a_record_that_cannot_take_the_answer_is_refused(value: bytes) -> None:
    assert isinstance(json.loads(value), dict)
    with pytest.raises(ValueError, match=r"UTF-8|already"):
        require_room(value, "r")


def test_the_header_says_which_answer_came_when() -> None:
    name, value = Answer(b"{}", 1_700_000_000_000, "cached").header("rates")
    assert name == "onceflow.answer"
    assert json.loads(value) == {"enrichment": "rates", "at_ms": 1_700_000_000_000, "how": "cached"}
    _, value = Answer(b"null", 7, "none", "404 Not Found").header("rates")
    assert json.loads(value) == {
        "enrichment": "rates",
        "at_ms": 7,
        "how": "none",
        "why": "404 Not Found",
    }


def test_a_cache_forgets_by_age_and_for_room() -> None:
    cache = AnswerCache(lifetime_s=10, at_most=2, max_bytes=10)
    one, large = Answer(b"1", 0), Answer(b"123456789", 0)
    cache.put("a", one, 0)
    assert cache.get("a", 9.9) == one
    assert cache.get("a", 10) is None
    for n, name in enumerate("abc"):
        cache.put(name, one, 20 + n)
    assert [cache.get(name, 22) for name in "abc"] == [None, one, one]
    cache.put("d", large, 23)
    assert [cache.get(name, 23) for name in "bcd"] == [None, one, large]
    cache.put("e", Answer(b"x" * 11, 0), 24)
    assert len(cache) == 0
    cache.put("a", one, 25)
    cache.put("b", one, 26)
    cache.put("a", large, 27)
    assert [cache.get(name, 36.5) for name in "ab"] == [large, None]

"""Keys, records and answers of posts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from onceflow.gateway.model import PostedTopic
from onceflow.gateway.posts import (
    LINES,
    ONE,
    Door,
    KeyOf,
    Refusal,
    accepted,
    answer_again,
    content_type_of,
    key_of,
    remembered,
    runs_of,
)

VIEWS = PostedTopic.model_validate(
    {"schema": "page STRING NOT NULL, n BIGINT, at TIMESTAMP, price DECIMAL(9, 2)", "key": "page"}
)


def door(block: PostedTopic = VIEWS, max_records: int = 10, max_bytes: int = 100) -> Door:
    return Door("views", block, max_records, max_bytes)


def refused(body: bytes, content_type: str = ONE, at: Door | None = None) -> tuple[int, str]:
    with pytest.raises(Refusal) as found:
        (at or door()).records(content_type, body)
    return found.value.answer.status, str(found.value)


def test_a_record_is_written_as_it_was_sent_with_its_key() -> None:
    [record] = door().records(ONE, b' {"n": 1, "page": "\xc3\xa9", "more": [1]} \r\n')
    assert record.value == b'{"n": 1, "page": "\xc3\xa9", "more": [1]}'
    assert record.key == "é".encode()


def test_every_line_is_a_record_and_empty_ones_are_none() -> None:
    records = door().records(LINES, b'{"page":"a"}\r\n\n{"page":"b"}\n')
    assert [record.key for record in records] == [b"a", b"b"]


def test_a_whole_number_may_be_a_key_and_any_object_fits_without_a_schema() -> None:
    numbers = PostedTopic.model_validate({"schema": "n INT", "key": "n"})
    assert door(numbers).records(ONE, b'{"n": 007}'.replace(b"00", b""))[0].key == b"7"
    assert door(PostedTopic()).records(ONE, b"{}")[0].key is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"n": 1}', "page: expected a value, found null"),
        (b'{"page": 1}', "page: expected string, found int 1"),
        (b'{"page": "a", "n": "1"}', "n: expected bigint, found str '1'"),
        (b'{"page": "a", "n": 1.5}', "n: expected bigint"),
        (b'{"page": "a", "n": true}', "n: expected bigint"),
        (b'{"page": "a", "n": 9223372036854775808}', "n: expected bigint"),
        (b'{"page": "a", "n": NaN}', "JSON has no number NaN"),
        (b'{"page": "a", "at": "yesterday"}', "at: expected timestamp"),
        (b'{"page": "a", "price": 1.234}', "price: expected decimal(9,2)"),
        (b'{"page": "\\ud800"}', "half of a surrogate pair"),
        (b'{"page": "a"} {}', "expected JSON"),
        (b'["a"]', "expected a JSON object, found list"),
        (b'{"page": "\xff"}', "expected JSON, found UnicodeDecodeError"),
        (b"[" * 100_000, "expected JSON, found RecursionError"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    status, told = refused(body)
    assert status == 422
    assert told.startswith("record 1 does not fit views: ")
    assert reason in told
    assert len(told) < 400


def test_the_record_at_fault_is_named() -> None:
    status, told = refused(b'{"page":"a"}\n{"page":3}\n', LINES)
    assert (status, told.startswith("record 2 ")) == (422, True)


def test_a_post_without_a_record_is_refused() -> None:
    assert refused(b"\n\n", LINES)[0] == 422
    assert refused(b"")[0] == 422


def test_too_many_or_too_large_records_are_refused() -> None:
    lines = b"\n".join([b'{"page":"a"}'] * 11)
    assert refused(lines, LINES) == (413, "11 records in one post; at most 10 are allowed")
    assert refused(lines * 50, LINES)[0] == 413
    exact = b'{"page":"%s"}' % (b"x" * 44)
    assert len(exact) + 44 == 99
    assert door().records(ONE, exact)
    assert refused(exact.replace(b"x", b"xx", 1)) == (
        413,
        "record 1 has 101 bytes; views takes at most 100",
    )


@pytest.mark.parametrize("key", ["a", '"a b"', "x" * 255, "8e03978e-40d5-43e8"])
def test_keys_with_and_without_quotes(key: str) -> None:
    assert len(key_of(key, "web", ("t", ONE, b"{}")).hashed) == 16


@pytest.mark.parametrize("key", ["", '""', "a b", "x" * 256, 'a"b', "é", "a\x00", '"a', "a\\b"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Refusal) as found:
        key_of(key, "web", ("t", ONE, b"{}"))
    assert found.value.answer.status == 400


def test_quotes_are_no_part_of_a_key_but_its_caller_is() -> None:
    one = key_of("a", "web", ("t", ONE, b"{}"))
    assert one == key_of('"a"', "web", ("t", ONE, b"{}"))
    assert one.hashed != key_of("a", "app", ("t", ONE, b"{}")).hashed


@pytest.mark.parametrize("content", [("u", ONE, b"{}"), ("t", LINES, b"{}"), ("t", ONE, b"{} ")])
def test_another_topic_type_or_body_is_another_post(content: tuple[str, str, bytes]) -> None:
    one, other = key_of("a", "web", ("t", ONE, b"{}")), key_of("a", "web", content)
    assert (one.hashed, one.digest != other.digest) == (other.hashed, True)


def test_keys_are_spread_over_the_slots() -> None:
    keys = [key_of(str(n), "", ("t", ONE, b"")).slot(4) for n in range(400)]
    assert {keys.count(slot) > 60 for slot in range(4)} == {True}


@pytest.mark.parametrize(
    ("header", "found"),
    [(ONE, ONE), ("Application/JSON; charset=utf-8", ONE), ("application/jsonl", LINES)],
)
def test_content_types(header: str, found: str) -> None:
    assert content_type_of(header) == found


def test_other_content_types_are_refused() -> None:
    with pytest.raises(Refusal) as found:
        content_type_of("text/plain")
    assert found.value.answer.status == 415


@pytest.mark.parametrize(
    ("places", "runs"),
    [
        ([], []),
        ([(0, 5)], [(0, 5, 1)]),
        ([(1, 7), (0, 5), (0, 6), (0, 8)], [(0, 5, 2), (0, 8, 1), (1, 7, 1)]),
    ],
)
def test_offsets_in_a_row_are_told_as_one(
    places: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int, int]]
) -> None:
    assert runs_of(places) == runs


def test_a_post_that_is_repeated_gets_the_same_answer() -> None:
    key, places = KeyOf(b"k" * 16, "d1"), [(0, 5), (0, 6), (3, 1)]
    first = accepted("views", places)
    again = answer_again(key, remembered(key, "views", places, at_ms=1))
    assert again.status == first.status == 202
    assert json.dumps(again.fields) == json.dumps(first.fields)


def test_a_key_that_is_used_for_another_post_is_refused() -> None:
    value = remembered(KeyOf(b"k" * 16, "d1"), "views", [(0, 5)], at_ms=1)
    answer = answer_again(KeyOf(b"k" * 16, "d2"), value)
    assert answer.status == 422
    assert answer.retry_after_s is None

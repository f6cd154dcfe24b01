"""What the control API tells of dead letters."""

from __future__ import annotations

import json

from onceflow.contracts.connector import ReadRecord
from onceflow.control.records import KEY, letter_fields
from onceflow.protocol.dead_letter import DeadLetter

SECRET = "marker-of-a-value"
VALUE = json.dumps({"page": "/a", "user": SECRET}).encode()


def letter(value: bytes) -> DeadLetter:
    return DeadLetter(
        key=SECRET.encode(),
        value=value,
        headers=(("trace", SECRET.encode()),),
        reason="undecodable",
        text="a column is missing",
        pipeline="views",
        batch_id=7,
        source="clicks",
        topic="clicks",
        partition=1,
        offset=2,
        timestamp_ms=3,
    )


def told(value: bytes, *shown: str) -> dict[str, object]:
    one = letter(value)
    record = ReadRecord("dead", 0, 5, 4, one.key, one.value, ())
    return dict(letter_fields((record, one), shown))


def test_values_of_a_letter_are_told_of_shown_columns_only() -> None:
    found = told(VALUE, "page")

    assert SECRET not in json.dumps(found)
    assert found["columns"] == {"page": "/a"}
    assert found["columns_not_shown"] == 1
    assert found["headers"] == ["trace"]
    assert (found["reason"], found["at_offset"], found["offset"]) == ("undecodable", 5, 2)


def test_what_could_not_be_decoded_has_no_columns() -> None:
    found = told(f"no json: {SECRET}".encode(), "page")

    assert SECRET not in json.dumps(found)
    assert found["columns"] == {}
    assert found["value_bytes"] == len(f"no json: {SECRET}")


def test_the_key_is_a_column_that_may_be_shown() -> None:
    assert told(VALUE, KEY)["key"] == SECRET
    assert told(VALUE, "page")["key"] is None

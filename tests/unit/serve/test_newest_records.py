"""Which records may be seen, and how much is read for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceflow.clock import Deadline
from onceflow.contracts.record import Record
from onceflow.control.records import (
    KEY,
    MAX_PARTITIONS,
    MAX_RECORDS,
    MAX_TEXT,
    letter_fields,
    newest_records,
)
from onceflow.protocol.dead_letter import DeadLetter
from tests.support.clock import ManualClock

SECRET = "4111-1111"


@dataclass
class Topics:
    """Brokers that hold so many records in each partition, and count those that are read."""

    partitions: int = 1
    records: int = 1
    value: bytes = b"{}"
    key: bytes | None = None
    read_of: list[int] = field(default_factory=list)

    def newest_timestamps(self, topic: str, deadline: Deadline) -> Mapping[int, int]:
        return {partition: 1_000 + partition for partition in range(self.partitions)}

    def offsets(self, topic: str, deadline: Deadline) -> Mapping[int, tuple[int, int, int]]:
        return dict.fromkeys(range(self.partitions), (0, self.records, self.records))

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline
    ) -> Iterator[Record]:
        for partition, (start, end) in ranges.items():
            for offset in range(start, end):
                self.read_of.append(partition)
                at_ms = offset * 1_000 + partition
                yield Record(topic, partition, offset, at_ms, self.key, self.value, ())


def looked(topics: Topics, *shown: str) -> list[dict[str, Any]]:
    deadline = ManualClock().within(10)
    return [dict(each) for each in newest_records(topics, ["a"], shown, deadline)]  # type: ignore[arg-type]


def test_nothing_is_shown_that_nobody_has_allowed() -> None:
    value = json.dumps({"page": "/", "card": SECRET, SECRET: 1}).encode()
    (found,) = looked(Topics(value=value, key=SECRET.encode()), "page")
    assert found["columns"] == {"page": "/"}
    assert found["columns_not_shown"] == 2
    assert found["key"] is None
    assert found["value_bytes"] == len(value)
    assert SECRET not in str(found), "names of columns may be values, too"


@pytest.mark.parametrize(
    "value", [json.dumps({"page": "/a", "user": SECRET}), f"no JSON: {SECRET}"]
)
def test_letters_show_no_more_than_records(value: str) -> None:
    headers = (("trace", SECRET.encode()),)
    letter = DeadLetter(
        key=SECRET.encode(),
        value=value.encode(),
        headers=headers,
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
    filed = Record("dead", 0, 5, 4, letter.key, letter.value, ()), letter
    found = letter_fields(filed, ["page"])
    assert SECRET not in json.dumps(found)
    assert found["columns"] == ({"page": "/a"} if value.startswith("{") else {})
    assert (found["headers"], found["value_bytes"]) == (["trace"], len(value))
    assert (found["reason"], found["at_offset"], found["offset"]) == ("undecodable", 5, 2)
    assert letter_fields(filed, [KEY])["key"] == SECRET


def test_the_key_is_a_column() -> None:
    assert looked(Topics(key=b"k"), "_key")[0]["key"] == "k"
    assert looked(Topics(key=None), "_key")[0]["key"] is None


def test_values_are_short_and_harmless() -> None:
    value = json.dumps({"page": "\u202e\x1b[2J\n" + "x" * 9_000, "more": {"a": [1]}}).encode()
    (found,) = looked(Topics(value=value), "page", "more")
    assert found["columns"]["page"].startswith(r"\u202e\x1b[2J\n")
    assert len(found["columns"]["page"]) == MAX_TEXT
    assert found["columns"]["more"] == '{"a": [1]}'


def test_what_is_no_object_has_no_columns() -> None:
    for value in (b"", b"\xff", b"[1]", b"7", b"[" * 100_000, b'{"page":'):
        (found,) = looked(Topics(value=value), "page")
        assert (found["columns"], found["columns_not_shown"]) == ({}, 0)


def test_the_newest_are_told_and_little_is_read() -> None:
    topics = Topics(partitions=3 * MAX_PARTITIONS, records=1_000_000)
    found = looked(topics)
    assert len(topics.read_of) == MAX_PARTITIONS * MAX_RECORDS
    assert min(topics.read_of) == 2 * MAX_PARTITIONS, "partitions with the newest records"
    assert len(found) == MAX_RECORDS
    assert {each["offset"] for each in found} == {999_999}

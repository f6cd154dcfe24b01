from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.contracts.source import Position, Split
from onceflow.errors import CorruptionError
from onceflow_connectors.kafka.source.position import (
    MAX_SPLIT_OFFSETS,
    TopicPosition,
    at_end_of,
    decode,
    encode,
    ranges,
    splits,
)

INITIAL: Position = {"clicks": {"id": "A", "partitions": {}, "starts": {"0": 10, "1": 5}}}
FIRST: Position = {
    "clicks": {"id": "A", "partitions": {"0": 30, "1": 5}, "starts": {"0": 10, "1": 5}}
}
SECOND: Position = {
    "clicks": {"id": "A", "partitions": {"0": 40, "1": 8, "2": 3}, "starts": {"2": 1}}
}

offsets = st.dictionaries(st.integers(0, 200), st.integers(0, 2**60), max_size=15)
positions = st.dictionaries(
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5),
    st.builds(TopicPosition, topic_id=st.text(max_size=3), ends=offsets, starts=offsets),
    max_size=4,
)


@given(positions)
def test_a_position_is_canonical_text_and_decodes_to_itself(
    topics: dict[str, TopicPosition],
) -> None:
    position = encode(topics)
    assert json.dumps(position) == json.dumps(position, sort_keys=True)
    assert decode(json.loads(json.dumps(position))) == topics


def test_partitions_are_ordered_as_text_because_spark_compares_text() -> None:
    position = encode({"t": TopicPosition("A", ends={10: 1, 9: 1}, starts={})})
    assert list(position["t"]["partitions"]) == ["10", "9"]


def test_the_first_batch_takes_its_starts_from_its_own_end() -> None:
    expected = {"clicks": {0: (10, 30), 1: (5, 5)}}
    assert ranges(INITIAL, FIRST) == ranges(None, FIRST) == expected
    other: Position = {"clicks": {"id": "A", "partitions": {}, "starts": {"0": 99, "1": 99}}}
    assert ranges(other, FIRST) == expected


def test_a_partition_that_enters_begins_at_its_recorded_start() -> None:
    assert ranges(FIRST, SECOND) == {"clicks": {0: (30, 40), 1: (5, 8), 2: (1, 3)}}


def test_a_first_batch_that_read_nothing_is_all_starts() -> None:
    assert ranges(INITIAL, INITIAL) == {"clicks": {0: (10, 10), 1: (5, 5)}}


def test_a_batch_that_repeats_the_position_before_it_reads_nothing() -> None:
    assert ranges(FIRST, FIRST) == {"clicks": {0: (30, 30), 1: (5, 5)}}
    assert splits(FIRST, FIRST) == []


def test_ranges_survive_the_way_through_a_repaired_position() -> None:
    batch = ranges(FIRST, SECOND)
    repaired = at_end_of(batch, {"clicks": "A"})
    assert ranges(None, repaired) == batch
    assert decode(repaired)["clicks"].next_offsets == decode(SECOND)["clicks"].next_offsets


def test_a_partition_without_a_start_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="clicks-0"):
        ranges(None, {"clicks": {"id": "A", "partitions": {"0": 3}, "starts": {}}})


@pytest.mark.parametrize(
    "damaged",
    [
        {"clicks": {"partitions": {}, "starts": {}}},
        {"clicks": {"id": "A", "partitions": {"x": 1}, "starts": {}}},
        {"clicks": {"id": "A", "partitions": [1], "starts": {}}},
        {"clicks": 5},
    ],
)
def test_a_damaged_position_is_corruption(damaged: Position) -> None:
    with pytest.raises(CorruptionError, match="unreadable position"):
        decode(damaged)


def test_splits_skip_empty_ranges_and_carry_the_topic_id() -> None:
    assert splits(INITIAL, FIRST) == [Split("clicks", 0, 10, 30, "A")]


def test_long_ranges_are_cut_and_their_parts_are_ordered() -> None:
    end = encode(
        {"t": TopicPosition("A", ends={0: 2 * MAX_SPLIT_OFFSETS + 1, 1: 7}, starts={0: 0, 1: 0})}
    )
    start = encode({"t": TopicPosition("A", ends={}, starts={0: 0, 1: 0})})
    parts = splits(start, end)
    assert [(s.partition, s.start, s.end) for s in parts] == [
        (0, 0, MAX_SPLIT_OFFSETS),
        (1, 0, 7),
        (0, MAX_SPLIT_OFFSETS, 2 * MAX_SPLIT_OFFSETS),
        (0, 2 * MAX_SPLIT_OFFSETS, 2 * MAX_SPLIT_OFFSETS + 1),
    ]

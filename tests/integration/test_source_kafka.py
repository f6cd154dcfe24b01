"""The Kafka source beyond its contract, on a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import META_COLUMNS, Planner, Position, SourceSpec, Split
from onceflow.errors import (
    ConfigError,
    CorruptionError,
    DeadlineError,
    LineageError,
    RecordError,
)
from onceflow.runtime.source import jvm
from onceflow.testing.sources import RecordsRead
from onceflow.testing.sources.contract import records
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_origin import KafkaOrigin
from tests.support.eventually import eventually
from tests.support.everything import is_everything
from tests.support.outside.topics import delete_topic, ordered_producer, set_topic
from tests.support.reading import KafkaUnderTest

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
VALUE = pa.schema([("value", pa.string())])
MANY = 10_000
"""Records of several fetches, and of several batches of rows."""


@pytest.fixture
def origin(broker: RunningBroker, topic: Callable[[str], str]) -> KafkaOrigin:
    origin = KafkaOrigin(broker.bootstrap_servers, topic("input"))
    origin.create()
    return origin


def source(
    origin: KafkaOrigin,
    schema: pa.Schema = VALUE,
    format_name: str = "text",
    lateness_ms: int | None = None,
    **options: Any,
) -> KafkaUnderTest:
    chosen = options if "pattern" in options else {"topics": [origin.topic], **options}
    spec = SourceSpec("input", format_name, schema, lateness_ms=lateness_ms)
    block = KafkaSource.model_validate(chosen)
    return KafkaUnderTest(block, Connection(origin.bootstrap_servers), spec)


def planner(origin: KafkaOrigin, **options: Any) -> Planner:
    return source(origin, **options).planner()


def produce(origin: KafkaOrigin, partition: int, stamps: Mapping[str, int]) -> None:
    """Value and timestamp of each record."""
    producer = ordered_producer(origin.bootstrap_servers)
    for value, at_ms in stamps.items():
        producer.produce(origin.topic, value, partition=partition, timestamp=at_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def starts(position: Position, topic: str) -> Mapping[str, int]:
    found: Mapping[str, int] = position[topic]["starts"]
    return found


def table(source: KafkaUnderTest) -> pa.Table:
    """All rows from the beginning, in the order of splits."""
    planner = source.planner()
    start = planner.initial_position()
    end = planner.latest_position(start, None)
    return pa.Table.from_batches(source.reader().read(planner.splits(start, end)))


def test_a_new_pipeline_starts_where_it_is_told(origin: KafkaOrigin) -> None:
    produce(origin, 0, {f"v{i}": START_MS + i * 1000 for i in range(10)})
    produce(origin, 1, {"old": START_MS})
    after_4_s = {"timestamp": "2023-11-14T22:13:24Z"}
    for starting, expected in (
        ("earliest", {"0": 0, "1": 0}),
        ("latest", {"0": 10, "1": 1}),
        (after_4_s, {"0": 4, "1": 1}),
    ):
        position = planner(origin, starting=starting).initial_position()
        assert starts(position, origin.topic) == expected


def test_topics_of_a_pattern_are_read_and_later_ones_join(
    broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    first, second = (KafkaOrigin(broker.bootstrap_servers, topic(name)) for name in ("p-a", "p-b"))
    first.create()
    first.append(0, records("a", 3))
    pattern = f"(p-.|__.*){re.escape(first.topic.removeprefix('p-a'))}"
    with pytest.raises(ConfigError, match="no topic matches"):
        planner(first, pattern="no-such-.*").initial_position()
    reading = RecordsRead(source(first, pattern=pattern))
    assert list(reading.position) == [first.topic]
    second.create()
    second.append(1, records("b", 2))
    fresh = planner(first, pattern=pattern)
    end = fresh.latest_position(reading.position, None)
    assert sorted(end) == [first.topic, second.topic]
    assert fresh.ranges(reading.position, end)[second.topic] == {0: (0, 0), 1: (0, 2)}


def test_a_topic_that_does_not_exist_is_refused_by_name(origin: KafkaOrigin) -> None:
    with pytest.raises(ConfigError, match="does not exist: no-such-topic"):
        planner(origin, topics=[origin.topic, "no-such-topic"]).initial_position()


def test_a_topic_that_disappears_is_corruption(origin: KafkaOrigin) -> None:
    origin.append(0, records("a", 3))
    before = planner(origin)
    end = before.latest_position(before.initial_position(), None)
    delete_topic(origin.bootstrap_servers, origin.topic)
    for each in (before, planner(origin)):
        with pytest.raises(CorruptionError, match=origin.topic):
            each.latest_position(end, None)


def test_a_topic_that_the_pipeline_dropped_is_refused(origin: KafkaOrigin) -> None:
    position = planner(origin).initial_position()
    with pytest.raises(LineageError, match=origin.topic):
        planner(origin, topics=["another"]).latest_position(position, None)


def test_columns_of_the_record_itself(origin: KafkaOrigin) -> None:
    producer = ordered_producer(origin.bootstrap_servers)
    producer.produce(origin.topic, b"x", b"key", partition=1, timestamp=START_MS)
    producer.produce(origin.topic, None, None, partition=1, timestamp=START_MS + 1)
    producer.flush(30)
    schema = pa.schema([*META_COLUMNS.items(), ("value", pa.string())])
    found = table(source(origin, schema)).to_pylist()
    assert [list(row) for row in found] == [schema.names] * 2
    first, second = found
    assert (first["_key"], first["value"]) == (b"key", "x")
    assert (second["_key"], second["value"]) == (None, None)
    assert [(row["_topic"], row["_partition"], row["_offset"]) for row in found] == [
        (origin.topic, 1, 0),
        (origin.topic, 1, 1),
    ]
    assert [row["_timestamp"].timestamp() * 1000 for row in found] == [START_MS, START_MS + 1]


def test_a_bad_record_among_many_is_named_by_its_offset(origin: KafkaOrigin) -> None:
    bad_at = MANY + 17
    producer = ordered_producer(origin.bootstrap_servers)
    for i in range(2 * MANY):
        value = b'{"a": 1' if i == bad_at else b'{"a": %d}' % i
        producer.produce(origin.topic, value, partition=0)
    producer.flush(30)
    with pytest.raises(RecordError, match=f"offset {bad_at} of {origin.topic}-0"):
        table(source(origin, pa.schema([("a", pa.int64())]), "json"))


def test_payloads_that_no_column_comes_from_are_not_looked_at(origin: KafkaOrigin) -> None:
    origin.append(0, [(b"k", b"not json")])
    schema = pa.schema([("_offset", pa.int64())])
    assert table(source(origin, schema, "json")).to_pylist() == [{"_offset": 0}]


def test_a_timestamp_that_is_none_is_null(origin: KafkaOrigin) -> None:
    """In nanoseconds, where a broker takes any: microseconds overflow."""
    set_topic(
        origin.bootstrap_servers,
        origin.topic,
        {"message.timestamp.after.max.ms": str(2**63 - 1)},
    )
    produce(origin, 0, {"ms": START_MS, "us": START_MS * 1_000, "ns": START_MS * 1_000_000})
    schema = pa.schema([("_timestamp", META_COLUMNS["_timestamp"]), ("value", pa.string())])
    found = {row["value"]: row["_timestamp"] for row in table(source(origin, schema)).to_pylist()}
    assert {value: at and at.year for value, at in found.items()} == {
        "ms": 2023,
        "us": None,
        "ns": None,
    }
    # A backlog with such timestamps is cut all the same.
    limited = planner(origin, lateness_ms=0)
    end = limited.latest_position(limited.initial_position(), 2)
    assert end[origin.topic]["partitions"]["0"] in {1, 2}


def test_lost_records_are_named_with_their_range_and_a_cure(origin: KafkaOrigin) -> None:
    origin.append(0, records("a", 10))
    plans = planner(origin)
    start = plans.initial_position()
    (split,) = plans.splits(start, plans.latest_position(start, None))
    origin.delete_before(0, 4)
    lost = re.escape(f"offsets [0, 4) of {origin.topic}-0")
    with pytest.raises(CorruptionError, match=rf"{lost}.*retention\.ms"):
        source(origin).values([split])


@pytest.mark.parametrize("newcomer", ["partition", "topic"])
def test_a_newcomer_that_lost_its_beginning_while_nobody_looked_is_named_unless_accepted(
    origin: KafkaOrigin, newcomer: str
) -> None:
    """As when a pipeline is stopped for longer than the topic keeps records."""
    pattern = f"{re.escape(origin.topic)}.*"
    origin.append(0, records("a", 10))
    before = planner(origin, pattern=pattern)
    start = before.initial_position()
    reached = before.latest_position(start, None)
    if newcomer == "partition":
        joined, partition = origin, origin.add_partition()
    else:
        joined, partition = KafkaOrigin(origin.bootstrap_servers, f"{origin.topic}-more"), 1
        joined.create()
    joined.append(partition, records("b", 100))
    joined.delete_before(partition, 60)
    with pytest.raises(CorruptionError, match="deleted before they were read") as caught:
        planner(origin, pattern=pattern).latest_position(reached, None)
    assert caught.value.subject == f"offsets [0, 60) of {joined.topic}-{partition}"
    assert "on_trimmed: accept" in caught.value.then
    accepting = planner(origin, pattern=pattern, on_trimmed="accept")
    end = accepting.latest_position(reached, None)
    assert accepting.ranges(reached, end)[joined.topic][partition] == (60, 100)


def test_a_retired_topic_is_read_no_more_and_stays_where_it_was(
    origin: KafkaOrigin, topic: Callable[[str], str]
) -> None:
    other = KafkaOrigin(origin.bootstrap_servers, topic("old"))
    other.create()
    other.append(0, records("a", 3))
    both = [origin.topic, other.topic]
    before = planner(origin, topics=both)
    reached = before.latest_position(before.initial_position(), None)
    delete_topic(origin.bootstrap_servers, other.topic)
    origin.append(0, records("b", 2))
    with pytest.raises(CorruptionError, match="`retired`"):
        planner(origin, topics=both).latest_position(reached, None)
    retiring = planner(origin, topics=both, retired=[other.topic])
    end = retiring.latest_position(reached, None)
    assert end[other.topic] == reached[other.topic]
    assert retiring.ranges(reached, end) == {
        origin.topic: {0: (0, 2), 1: (0, 0)},
        other.topic: {0: (3, 3), 1: (0, 0)},
    }
    assert retiring.is_silent(end)
    assert retiring.position(None, retiring.ranges(reached, end))[other.topic]["id"] == ""
    # Also where no file names it any more.
    assert planner(origin, retired=[other.topic]).latest_position(end, None) == end


def test_many_chunks_with_holes_are_read_completely(origin: KafkaOrigin) -> None:
    expected = []
    for number in range(6):
        batch = records(f"t{number}-", MANY // 2)
        transaction = origin.begin(0, batch)
        if number % 2:
            transaction.abort()
        else:
            transaction.commit()
            expected += [value.decode() for _, value in batch]
    plans = planner(origin)
    start = plans.initial_position()
    end = eventually(
        lambda: plans.latest_position(start, None),
        until=lambda end: end[origin.topic]["partitions"]["0"] == 6 * (MANY // 2 + 1),
    )
    (split,) = plans.splits(start, end)
    found = pa.Table.from_batches(source(origin).reader().read([split]))
    assert found.column("value").to_pylist() == expected


def test_a_reader_that_changes_partitions_reads_what_another_would(origin: KafkaOrigin) -> None:
    for partition in (0, 1):
        origin.append(partition, records(f"p{partition}-", 100))
    reading = RecordsRead(origin.source(), max_records=7)
    reading.until_idle()
    for partition in (0, 1):
        assert reading.values[partition] == [v for _, v in records(f"p{partition}-", 100)]


@pytest.mark.parametrize("fetched_bytes", [1_000_000, 1000])
def test_ranges_anywhere_hold_what_was_committed_there(
    fetched_bytes: int, origin: KafkaOrigin, random: Random
) -> None:
    """A reader jumps about in logs full of holes, while these grow."""
    logs: dict[int, list[bytes | None]] = {0: [], 1: []}

    def grow(partition: int) -> None:
        log = logs[partition]
        batch = [(b"k", b"%d" % (len(log) + i)) for i in range(random.choice([1, 3, 50, 500]))]
        values = [value for _, value in batch]
        match random.choice(["plain", "committed", "aborted"]):
            case "plain":
                origin.append(partition, batch)
                log += values
            case "committed":
                origin.begin(partition, batch).commit()
                log += [*values, None]
            case _:
                origin.begin(partition, batch).abort()
                log += [None] * (len(values) + 1)

    properties = {"fetch.message.max.bytes": str(fetched_bytes)}
    connection = Connection(origin.bootstrap_servers, properties)
    spec = SourceSpec("input", "binary", pa.schema([("value", pa.binary())]))
    reading = KafkaUnderTest(origin.block, connection, spec)
    ends = {0: 0, 1: 0}
    for step in range(150 if is_everything() else 50):
        if step % 10 == 0:
            grow(0)
            grow(1)
        splits, expected = [], []
        for partition in random.choice([[0], [1], [0, 1], [1, 0]]):
            log = logs[partition]
            start = random.choice([ends[partition] % len(log), random.randrange(len(log))])
            end = min(len(log), start + random.choice([1, 3, 1000, len(log)]))
            splits.append(Split(origin.topic, partition, start, end))
            expected += [value for value in log[start:end] if value is not None]
            ends[partition] = end
        assert reading.values(splits) == expected


@pytest.mark.parametrize("lateness_ms", [None, 0])
def test_a_backlog_is_read_in_time_if_there_is_event_time(
    origin: KafkaOrigin, lateness_ms: int | None
) -> None:
    """One partition is a hundred times longer than the other, and begins later."""
    produce(origin, 0, {f"a{i}": START_MS + DAY_MS + i * 10 for i in range(2000)})
    produce(origin, 1, {f"b{i}": START_MS + i * DAY_MS // 10 for i in range(20)})
    schema = pa.schema([("_timestamp", META_COLUMNS["_timestamp"])])
    reading = source(origin, schema, lateness_ms=lateness_ms)
    plans, reader = reading.planner(), reading.reader()
    position, newest_ms, lateness_seen_ms = plans.initial_position(), 0, 0
    while (end := plans.latest_position(position, 100)) != position:
        splits = plans.splits(position, end)
        rows = pa.Table.from_batches(reader.read(splits)).to_pylist()
        stamps = [row["_timestamp"].timestamp() * 1000 for row in rows]
        lateness_seen_ms = max(lateness_seen_ms, newest_ms - int(min(stamps)))
        newest_ms, position = max(newest_ms, int(max(stamps))), end
    assert position[origin.topic]["partitions"] == {"0": 2000, "1": 20}
    assert (lateness_seen_ms <= 0) == (lateness_ms is not None)


def test_a_read_without_brokers_ends_and_names_its_place(
    origin: KafkaOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "STALL_TIMEOUT_S", 1.0)
    spec = SourceSpec("input", "text", VALUE)
    nowhere = KafkaUnderTest(origin.block, Connection("127.0.0.1:1"), spec)
    with pytest.raises(DeadlineError, match=r"offset 17 of clicks-3; .*before 20 within 1 s"):
        nowhere.values([Split("clicks", 3, 17, 20)])

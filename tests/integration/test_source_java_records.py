"""The source in Spark's JVM reads records of every kind: compressed, huge, null, between holes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from random import Random

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import META_COLUMNS, REJECT_COLUMN, Split
from onceflow.errors import ConfigError
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine
from tests.support.outside.topics import ANSWER_TIMEOUT_S, create_topic, ordered_producer
from tests.support.reading import frame_of, rows_of

MEGABYTE = 1024 * 1024


def meta(*names: str) -> pa.Schema:
    return pa.schema([(name, META_COLUMNS[name]) for name in names])


OFFSETS = meta("_offset")


@pytest.fixture
def spark() -> SparkSession:
    return engine().open_session("")


@pytest.fixture
def name(broker: RunningBroker, topic: Callable[[str], str]) -> str:
    made = topic("records")
    create_topic(broker.bootstrap_servers, made, 1, {"max.message.bytes": str(48 * MEGABYTE)})
    return made


@pytest.fixture
def connection(broker: RunningBroker) -> Connection:
    return Connection(broker.bootstrap_servers)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(
    spark: SparkSession, connection: Connection, name: str, codec: str
) -> None:
    producer = ordered_producer(connection.bootstrap_servers, codec)
    values = [f"{number} {'x' * (number % 300)}".encode() for number in range(20_000)]
    for value in values:
        producer.produce(name, value)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0
    rows = rows_of(spark, connection, [Split(name, 0, 5, 19_995)], meta("_offset", "_value"))
    assert [row["_offset"] for row in rows] == [*range(5, 19_995)]
    assert [row["_value"] for row in rows] == values[5:19_995]


def test_what_is_missing_stays_null_and_what_is_empty_stays_empty(
    spark: SparkSession, connection: Connection, name: str
) -> None:
    producer = ordered_producer(connection.bootstrap_servers)
    sent: list[tuple[bytes | None, bytes | None]] = [
        (key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")
    ]
    for key, value in sent * 500:
        producer.produce(name, value, key)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0
    columns = meta("_key", "_value").append(pa.field("whole", pa.binary()))
    rows = rows_of(spark, connection, [Split(name, 0, 0, 4500)], columns)
    assert [(row["_key"], row["_value"]) for row in rows] == sent * 500
    assert [row["whole"] for row in rows] == [value for _, value in sent * 500]


def test_records_larger_than_the_bound_of_what_is_fetched_ahead_are_read(
    spark: SparkSession, connection: Connection, name: str
) -> None:
    """With a heap of 1 GB, 64 MB may wait; two records of these are more."""
    producer = Producer(
        {
            "bootstrap.servers": connection.bootstrap_servers,
            "enable.idempotence": True,
            "message.max.bytes": 64 * MEGABYTE,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )
    values = [Random(number).randbytes(36 * MEGABYTE) for number in range(4)]
    for value in values:
        producer.produce(name, value)
        assert producer.flush(ANSWER_TIMEOUT_S) == 0
    splits = [Split(name, 0, 0, 4)]
    frame = frame_of(spark, connection, splits, meta("_offset", "_value"))
    found = frame.selectExpr("_offset", "length(_value) AS size", "crc32(_value) AS sum").collect()
    assert [(row["_offset"], row["size"]) for row in found] == [
        (number, 36 * MEGABYTE) for number in range(4)
    ]
    assert len({row["sum"] for row in found}) == 4


def test_huge_headers_count_for_the_bound(
    spark: SparkSession, connection: Connection, name: str
) -> None:
    """200 MB of headers, with a heap of 1 GB, in batches of columns that hold a few of them."""
    producer = ordered_producer(connection.bootstrap_servers, "zstd")
    for number in range(400):
        header = b"%03d" % number + b"h" * (MEGABYTE // 2)
        producer.produce(name, b"", headers=[("a", header), ("b", None)])
        producer.poll(0)
        if number % 50 == 49:
            assert producer.flush(ANSWER_TIMEOUT_S) == 0
    frame = frame_of(spark, connection, [Split(name, 0, 0, 400)], meta("_offset", "_headers"))
    rows = frame.selectExpr(
        "_offset",
        "size(_headers) AS count",
        "length(_headers[0].value) AS size",
        "cast(substr(_headers[0].value, 1, 3) AS STRING) AS begin",
        "_headers[1].value AS none",
    ).collect()
    assert [tuple(row) for row in rows] == [
        (number, 2, 3 + MEGABYTE // 2, f"{number:03d}", None) for number in range(400)
    ]


HOLE = 12_000
"""More offsets than a reader passes over instead of jumping."""


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, HOLE + 7, [0, 1, HOLE + 4, HOLE + 5]),
        (2, HOLE + 7, [HOLE + 4, HOLE + 5]),
        (HOLE // 2, HOLE + 5, [HOLE + 4]),
        (1, HOLE // 2, [1]),
        (5, HOLE // 2, []),
    ],
)
def test_holes_are_passed_over(
    spark: SparkSession,
    connection: Connection,
    name: str,
    start: int,
    end: int,
    expected: Sequence[int],
) -> None:
    """2 records and a marker, an aborted transaction and its marker, 2 records and a marker."""
    producer = Producer(
        {"bootstrap.servers": connection.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions(ANSWER_TIMEOUT_S)
    for count, is_kept in ((2, True), (HOLE, False), (2, True), (1, True)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(name, b"value")
            producer.poll(0)
        if is_kept:
            producer.commit_transaction(ANSWER_TIMEOUT_S)
        else:
            assert producer.flush(ANSWER_TIMEOUT_S) == 0
            producer.abort_transaction(ANSWER_TIMEOUT_S)
    rows = rows_of(spark, connection, [Split(name, 0, start, end)], OFFSETS)
    assert [row["_offset"] for row in rows] == expected


def test_csv_and_its_rejects_come_through(
    spark: SparkSession, connection: Connection, name: str
) -> None:
    values = [b'1,"a ""b"""', b"2,", b"x,c", b"3", b"4,d\n", b"\xff,e", None]
    send(connection, name, values)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), (REJECT_COLUMN, pa.string())])
    rows = rows_of(spark, connection, [Split(name, 0, 0, 7)], schema, "csv")
    assert [(row["id"], row["name"]) for row in rows] == [
        (1, 'a "b"'),
        (2, None),
        (None, None),
        (None, None),
        (4, "d"),
        (None, None),
        (None, None),
    ]
    assert [row[REJECT_COLUMN] for row in rows] == [
        None,
        None,
        "Failed to parse string: 'x' as a scalar of type int64",
        "expected 2 fields, found 1",
        None,
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "the record has no payload",
    ]


AVRO = {
    "type": "record",
    "name": "view",
    "fields": [
        {"name": "page", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def test_avro_and_its_rejects_come_through(
    spark: SparkSession, connection: Connection, name: str
) -> None:
    stream = io.BytesIO()
    view = {"page": "home", "at": 1_700_000_000_123, "tags": ["a", "b"]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), view)
    good = stream.getvalue()
    send(connection, name, [good, good[:-1], good + b"\0\0", None, good])
    schema = pa.schema(
        [
            ("tags", pa.list_(pa.string())),
            ("at", pa.timestamp("us", "UTC")),
            ("missing", pa.int64()),
            (REJECT_COLUMN, pa.string()),
        ]
    )
    options = {"schema": json.dumps(AVRO)}
    rows = rows_of(spark, connection, [Split(name, 0, 0, 5)], schema, "avro", options)
    assert [row["tags"] for row in rows] == [["a", "b"], None, None, None, ["a", "b"]]
    assert rows[0]["at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert [row[REJECT_COLUMN] for row in rows] == [
        None,
        "not a datum of the schema: EOFError",
        "2 bytes after the datum",
        "the record has no payload",
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "options", "schema", "told"),
    [
        (
            "avro",
            {"schema": '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "b"}]}'},
            pa.schema([("a", pa.string())]),
            "unreadable Avro schema; expected JSON text of a record schema; found the unknown type",
        ),
        (
            "csv",
            {"columns": ["a", "b"]},
            pa.schema([("a", pa.string()), ("c", pa.string())]),
            "columns that the rows do not have: c; expected some of a, b",
        ),
        (
            "csv",
            {},
            pa.schema([("a", pa.list_(pa.string()))]),
            "CSV has no nested columns: a; expected scalar types",
        ),
        (
            "text",
            {},
            pa.schema([("a", pa.int64())]),
            "the format has a single column; expected one payload column of type STRING",
        ),
    ],
)
def test_a_format_that_does_not_fit_is_refused_before_a_record_is_read(
    spark: SparkSession, kind: str, options: dict[str, object], schema: pa.Schema, told: str
) -> None:
    nowhere = Connection("127.0.0.1:1")
    with pytest.raises(ConfigError, match=told):
        rows_of(spark, nowhere, [Split("none", 0, 0, 1)], schema, kind, options)


def send(connection: Connection, name: str, values: Sequence[bytes | None]) -> None:
    producer = ordered_producer(connection.bootstrap_servers)
    for value in values:
        producer.produce(name, value)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0

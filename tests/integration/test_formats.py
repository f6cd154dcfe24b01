"""Every format in and out, updates, Python transformations, partitioners: end to end."""

from __future__ import annotations

import io
import json
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import create_topic, ordered_producer

AVRO_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "device", "type": "string"}, {"name": "value", "type": "long"}],
}
READINGS = [(f"device-{n % 5}", n) for n in range(40)]


def avro(device: str, value: int) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, AVRO_SCHEMA, {"device": device, "value": value})
    return buffer.getvalue()


def from_avro(data: bytes) -> tuple[str, int]:
    record = fastavro.schemaless_reader(io.BytesIO(data), AVRO_SCHEMA, None)
    assert isinstance(record, dict)
    return record["device"], record["value"]


def from_json(data: bytes) -> tuple[str, int]:
    row = json.loads(data)
    return row["device"], row["value"]


def from_csv(data: bytes) -> tuple[str, int]:
    device, value = data.decode().split(",")
    return device, int(value)


@dataclass(frozen=True)
class Format:
    """A format in a pipeline file, and as another program writes it."""

    block: str
    encode: Callable[[str, int], bytes]
    decode: Callable[[bytes], tuple[str, int]]


FORMATS = {
    "json": Format(
        "format: json", lambda d, v: json.dumps({"device": d, "value": v}).encode(), from_json
    ),
    "csv": Format("format: csv", lambda d, v: f"{d},{v}".encode(), from_csv),
    "avro": Format("format: avro\n    avro: {schema_file: reading.avsc}", avro, from_avro),
}


@dataclass(frozen=True)
class Topics:
    """Two topics and a name that no other test uses."""

    bootstrap_servers: str
    folder: Path
    name: str

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    def produce(self, values: Sequence[bytes | None], topic: str = "") -> None:
        topic = topic or self.source
        create_topic(self.bootstrap_servers, topic, 2)
        self.send(values, topic)

    def send(self, values: Sequence[bytes | None], topic: str) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 2)
        assert producer.flush(30) == 0

    def run(self, source: str, query: str, sink: str) -> list[Written]:
        """One source, called `readings`."""
        block = f"readings:\n    kafka: {{topics: [{self.source}]}}\n    {source}"
        return self.run_sources([block], query, sink)

    def run_sources(self, sources: Sequence[str], query: str, sink: str) -> list[Written]:
        (self.folder / "reading.avsc").write_text(json.dumps(AVRO_SCHEMA))
        file = self.folder / "pipeline.yaml"
        blocks = "".join(f"  {source}\n" for source in sources)
        file.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
{blocks}{query}
sink:
  {sink}
"""
        )
        run_here(file, self.bootstrap_servers)
        return read_topic(self.bootstrap_servers, self.target)


@pytest.fixture
def topics(broker: RunningBroker, tmp_path: Path) -> Topics:
    return Topics(broker.bootstrap_servers, tmp_path, f"formats-{uuid.uuid4().hex[:8]}")


SCHEMA = 'schema: "device STRING, value BIGINT"'
COPY = "query: SELECT device, value FROM readings"


@pytest.mark.parametrize("out", FORMATS)
def test_a_row_keeps_its_values_from_any_format_to_any_other(topics: Topics, out: str) -> None:
    """A source of each format, one pipeline: a start takes longer than anything that it does."""
    sources = []
    for number, (name, into) in enumerate(FORMATS.items()):
        topic = f"{topics.source}-{name}"
        topics.produce([into.encode(d, v + 100 * number) for d, v in READINGS], topic)
        sources.append(f"{name}:\n    kafka: {{topics: [{topic}]}}\n    {into.block}\n    {SCHEMA}")
    sink = FORMATS[out].block.replace("\n    ", "\n  ")
    written = topics.run_sources(
        sources,
        "query: " + " UNION ALL ".join(f"SELECT device, value FROM {name}" for name in FORMATS),
        f"kafka: {{topic: {topics.target}, partitions: 3, key: device}}\n  {sink}",
    )
    assert sorted(FORMATS[out].decode(w.value or b"") for w in written) == sorted(
        (d, v + 100 * number) for number in range(len(FORMATS)) for d, v in READINGS
    )
    assert all(w.partition == zlib.crc32(w.key or b"") % 3 for w in written)


@pytest.mark.parametrize(("name", "kind"), [("text", "STRING"), ("binary", "BINARY")])
def test_payloads_of_one_value_pass_through_unchanged(topics: Topics, name: str, kind: str) -> None:
    values = [f'line {n}, with; "any" text\n'.encode() for n in range(20)]
    topics.produce(values)
    written = topics.run(
        f"format: {name}",
        "query: SELECT value FROM readings",
        f"kafka: {{topic: {topics.target}, partitions: 2}}\n  format: {name}",
    )
    assert sorted(w.value or b"" for w in written) == sorted(values), kind


def test_the_highest_revision_of_a_key_is_its_newest_row(topics: Topics) -> None:
    """For readers to whom records come in any order; what comes late, but not too late, counts."""
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    create_topic(topics.bootstrap_servers, topics.source, 2)
    for seconds in ([0, 30, 61], [10, 59, 62], [45, 300]):
        values = [{"device": "a", "at": (at + timedelta(seconds=s)).isoformat()} for s in seconds]
        topics.send([json.dumps(value).encode() for value in values], topics.source)
        written = topics.run(
            'schema: "device STRING, at TIMESTAMP"\n    event_time: at\n    lateness: 2 minutes',
            "query: SELECT device, window.start AS since, count(*) AS n FROM readings"
            " GROUP BY device, window(at, '1 minute')",
            f"kafka: {{topic: {topics.target}, partitions: 2, key: device}}\n"
            "  emit: updates\n  revision: version",
        )
    rows = [w.row for w in written]
    assert [row["n"] for row in rows if row["since"].endswith("12:00:00.000Z")] == [2, 4, 5]
    for row in rows:
        same = [other for other in rows if other["since"] == row["since"]]
        newest = max(same, key=lambda other: int(other["version"]))
        assert newest["n"] == max(other["n"] for other in same)
        assert len({other["version"] for other in same}) == len(same)


def test_updates_end_in_the_last_value_of_each_key(topics: Topics) -> None:
    topics.produce([FORMATS["json"].encode(*reading) for reading in READINGS])
    written = topics.run(
        SCHEMA,
        "query: SELECT device, sum(value) AS total, count(*) AS n FROM readings GROUP BY device",
        f"kafka: {{topic: {topics.target}, partitions: 2, key: device}}\n  emit: updates",
    )
    latest = {w.row["device"]: (w.row["total"], w.row["n"]) for w in written}
    devices = {device for device, _ in READINGS}
    assert latest == {
        d: (sum(v for x, v in READINGS if x == d), sum(x == d for x, _ in READINGS))
        for d in devices
    }


def test_a_python_function_transforms_as_well_as_a_query(topics: Topics) -> None:
    (topics.folder / "doubling.py").write_text(
        "def double(readings):\n    return readings.selectExpr('device', 'value * 2 AS value')\n"
    )
    topics.produce([FORMATS["json"].encode(*reading) for reading in READINGS])
    written = topics.run(
        SCHEMA, "transform: doubling:double", f"kafka: {{topic: {topics.target}, partitions: 2}}"
    )
    assert sorted((w.row["device"], w.row["value"]) for w in written) == sorted(
        (device, value * 2) for device, value in READINGS
    )


def test_the_query_may_choose_the_partition(topics: Topics) -> None:
    topics.produce([FORMATS["json"].encode(*reading) for reading in READINGS])
    written = topics.run(
        SCHEMA,
        "query: SELECT device, value, CAST(value % 3 AS INT) AS place FROM readings",
        f"kafka: {{topic: {topics.target}, partitions: 3, partition: place}}",
    )
    assert all(w.partition == w.row["value"] % 3 for w in written)
    assert len(written) == len(READINGS)


def test_ordinary_lag_tools_see_the_position(topics: Topics) -> None:
    topics.produce([FORMATS["json"].encode(*reading) for reading in READINGS])
    topics.run(SCHEMA, COPY, f"kafka: {{topic: {topics.target}, partitions: 2}}")
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap_servers,
            "group.id": f"onceflow.{topics.name}",
            "enable.auto.commit": False,
        }
    )
    found = consumer.committed([TopicPartition(topics.source, p) for p in range(2)], 20)
    consumer.close()
    assert [p.offset for p in found] == [20, 20]

"""Records larger than Kafka's default limit of a megabyte: written if they fit, kept if not."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import create_topic, set_topic

PREFIX = "onceflow.dead_letter."
MEGABYTE = 1_000_000


@dataclass
class Job:
    """Copies rows of any size."""

    servers: str
    folder: Path
    name: str = field(default_factory=lambda: f"large-{uuid.uuid4().hex[:8]}")

    def write_file(self) -> Path:
        path = self.folder / "pipeline.yaml"
        path.write_text(f"""\
apiVersion: onceflow/v1
name: {self.name}
sources:
  rows:
    kafka: {{topics: [{self.name}-in]}}
    schema: "k STRING, v STRING"
query: SELECT k, v FROM rows
sink:
  kafka: {{topic: {self.name}-out, partitions: 2, key: k}}
checkpoint: {self.folder / "checkpoint"}
dead_letter: {{topic: {self.name}-dead}}
""")
        return path

    def send(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 20 * MEGABYTE})
        for value in values:
            producer.produce(f"{self.name}-in", value, b"key", headers=[("trace", b"1")])
        assert producer.flush(60) == 0

    def letters(self) -> list[Written]:
        return read_topic(self.servers, f"{self.name}-dead")

    def pages(self) -> list[str]:
        return sorted(w.row["k"] for w in read_topic(self.servers, f"{self.name}-out"))


def row(name: str, size: int) -> bytes:
    """Nothing makes it smaller: limits are on what arrives, compressed."""
    noise = Random(name).randbytes(size // 2).hex()
    return json.dumps({"k": name, "v": noise}, separators=(",", ":")).encode()


def fact(letter: Written, name: str) -> str | None:
    found = dict(letter.headers).get(PREFIX + name)
    return found.decode() if found is not None else None


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> Job:
    made = Job(broker.bootstrap_servers, tmp_path)
    create_topic(made.servers, f"{made.name}-in", 1, {"max.message.bytes": str(20 * MEGABYTE)})
    return made


def test_a_row_is_written_if_its_topic_takes_it_and_kept_whole_if_not(job: Job) -> None:
    create_topic(job.servers, f"{job.name}-out", 2, {"max.message.bytes": str(5 * MEGABYTE)})
    undecodable = b"{not json" + b"x" * int(1.1 * MEGABYTE)
    large = row("8 MB", 8 * MEGABYTE)
    job.send(row("small", 10), row("1.2 MB", int(1.2 * MEGABYTE)), undecodable, large)
    run_here(job.write_file(), job.servers)
    assert job.pages() == ["1.2 MB", "small"]
    bad, refused = job.letters()
    assert (fact(bad, "reason"), bad.value) == ("undecodable", undecodable)
    assert (fact(refused, "reason"), refused.value) == ("too_large", large)


def test_a_letter_without_room_for_its_record_says_where_that_is(job: Job) -> None:
    """The output and the topic of letters have the default limit."""
    create_topic(job.servers, f"{job.name}-dead", 1)
    undecodable = b"{not json" + row("1.1 MB", int(1.1 * MEGABYTE))
    job.send(row("small", 10), undecodable, row("1.2 MB", int(1.2 * MEGABYTE)))
    events = run_here(job.write_file(), job.servers)
    (warning,) = [e["text"] for e in events.of_kind("warning") if f"{job.name}-dead" in e["text"]]
    assert "max.message.bytes is 1048588" in warning
    assert job.pages() == ["small"]
    refused, bad = sorted(job.letters(), key=lambda letter: fact(letter, "source") or "")
    assert (bad.key, bad.value, bad.headers[0]) == (b"key", None, ("trace", b"1"))
    place = [fact(bad, name) for name in ("topic", "partition", "offset", "left_out_bytes")]
    assert place == [f"{job.name}-in", "0", "1", str(len(undecodable))]
    assert (refused.key, refused.value) == (b"1.2 MB", None)
    assert int(fact(refused, "left_out_bytes") or 0) > 1.2 * MEGABYTE
    # Without its content it cannot be sent again; with the limit raised, the next one can.
    set_topic(job.servers, f"{job.name}-dead", {"max.message.bytes": str(21 * MEGABYTE)})
    job.send(undecodable)
    run_here(job.write_file(), job.servers)
    command = [
        "dead-letter",
        "replay",
        str(job.folder / "pipeline.yaml"),
        "--bootstrap-servers",
        job.servers,
        "-o",
        "json",
    ]
    told = CliRunner().invoke(build_app(), command)
    assert told.exit_code == 0, told.exception
    assert json.loads(told.stdout) == {"sent": 1, "kept": 2}

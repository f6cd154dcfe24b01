"""Parameters: a change begins with a batch, and a replay has the values of its batch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import (
    QUICK,
    keep_engine,
    run_here,
    run_until_it_fails,
    running_here,
)
from tests.support.eventually import eventually
from tests.support.jobs.job import Job
from tests.support.outside.topics import create_topic, ordered_producer

PROCESSOR = """\
from onceflow.processing import Processor


class Marks(Processor):
    key = "k"
    output = "id bigint, lim decimal(10,2), mode string"

    def on_records(self, key, records):
        for record in records:
            yield record.id, self.parameters["limit"], self.parameters["mode"]
"""
SETTINGS = {"spark": {**QUICK.__dict__, "max_result_bytes": "256 MiB"}}
TOPICS = ("seen", "plain")
DEFAULT = ("100.00", "strict")


@dataclass
class MarksJob(Job):
    """Each record of two sources, with the values that a processor and a query saw."""

    name: str = field(default_factory=lambda: f"marks-{uuid.uuid4().hex[:8]}")
    sent: int = 0

    @property
    def control_topic(self) -> str:
        return f"{self.name}-parameters"

    def topic(self, source: str) -> str:
        return f"{self.name}-{source}"

    def write_file(self, batch: int = 20) -> Path:
        module = self.name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(PROCESSOR)
        sources = "".join(
            f"""\
  {source}:
    kafka: {{topics: [{self.topic(source)}], max_records_per_batch: {batch}}}
    schema: "id BIGINT, k STRING, at TIMESTAMP"
    event_time: at
    lateness: 1 hour
"""
            for source in TOPICS
        )
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
apiVersion: onceflow/v1
name: {self.name}
parameters:
  topic: {self.control_topic}
  values:
    limit: {{type: "decimal(10,2)", default: 100}}
    mode: {{type: string, default: strict}}
sources:
{sources}process:
  marks: {{class: "{module}:Marks", input: seen}}
query: >-
  SELECT 'seen' AS way, id, lim, mode FROM marks
  UNION ALL SELECT 'plain', id, parameter('limit'), parameter('mode') FROM plain
sink:
  kafka: {{topic: {self.output_topic}, partitions: 1}}
checkpoint: {self.checkpoint}
"""
        )
        return path

    def produce(self, count: int) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        # One time for all: a batch may end early where the time changes (`cut.GOOD_FILL`).
        now_ms = SystemClock().unix_ms()
        for number in range(self.sent, self.sent + count):
            at = f"2026-03-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z"
            row = {"id": number, "k": f"k{number % 3}", "at": at}
            for source in TOPICS:
                content = json.dumps(row).encode()
                producer.produce(self.topic(source), content, partition=0, timestamp=now_ms)
        assert producer.flush(30) == 0
        self.sent += count

    def change(self, name: str, value: bytes | None) -> None:
        producer = ordered_producer(self.bootstrap_servers)
        producer.produce(self.control_topic, value, key=name, partition=0)
        assert producer.flush(30) == 0

    def planned(self) -> Mapping[str, str]:
        """Values in the newest entry of the offset log."""
        newest = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
        offsets = [json.loads(line) for line in newest.read_text().splitlines()[2:]]
        (told,) = [each["parameters"] for each in offsets if "parameters" in each]
        values: Mapping[str, str] = told["values"]
        return values

    def command(self, *arguments: str) -> str:
        """Run a command on the pipeline file; returns what it prints."""
        command, *rest = arguments
        (self.folder / "onceflow.yaml").write_text(json.dumps(SETTINGS))
        where = ["--bootstrap-servers", self.bootstrap_servers]
        where += ["--config", str(self.folder / "onceflow.yaml")]
        file = str(self.folder / "pipeline.yaml")
        told = CliRunner().invoke(build_app(), [*command.split(), file, *rest, *where])
        if told.exception is not None:
            raise told.exception
        return told.output

    def by_head(self) -> dict[tuple[str, int], tuple[Decimal, str]]:
        """The values that each record must have seen: those of the batch that read its offset."""
        found: dict[tuple[str, int], tuple[Decimal, str]] = {}
        for head in self.heads():
            values = head.get("parameters", {})
            limit, mode = values.get("limit", DEFAULT[0]), values.get("mode", DEFAULT[1])
            for source, topics in head["sources"].items():
                (partitions,) = topics.values()
                read = [(source, offset) for offset in range(*partitions["0"])]
                found |= dict.fromkeys(read, (Decimal(limit), mode))
        return found

    def check(self) -> dict[tuple[str, int], tuple[Decimal, str]]:
        expected = self.by_head()
        rows = [each.row for each in self.written()]
        found = [((r["way"], r["id"]), (Decimal(r["lim"]), r["mode"])) for r in rows]
        assert sorted(found) == sorted(expected.items())
        assert len(found) == len(TOPICS) * self.sent
        return expected


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> MarksJob:
    made = MarksJob(broker.bootstrap_servers, tmp_path)
    for source in TOPICS:
        create_topic(broker.bootstrap_servers, made.topic(source), 1)
    create_topic(broker.bootstrap_servers, made.control_topic, 1)
    return made


def test_a_replay_has_the_values_of_its_batch_whatever_was_set_since(
    job: MarksJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = job.write_file()
    job.produce(40)
    job.command("parameters set", "limit", "7")
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 2)
    assert job.planned() == {"limit": "7.00"}
    # The service is down, and several changes come in a row.
    job.command("parameters set", "limit", "8")
    job.command("parameters set", "limit", "8.25")
    job.command("parameters set", "mode", "lax")
    run_here(file, job.bootstrap_servers)
    values = [head.get("parameters", {}) for head in job.heads() if head["batch_id"] >= 0]
    assert values[:2] == [{"limit": "7.00"}, {"limit": "8.25", "mode": "lax"}]
    assert {*job.check().values()} == {(Decimal(7), "strict"), (Decimal("8.25"), "lax")}
    # A verification is a replay, too.
    keep_engine(monkeypatch)
    told = job.command("ledger verify", "--batch", "0")
    assert "batch 0: 40 records computed again, all equal" in told


def test_a_change_makes_a_batch_of_its_own_and_bad_values_are_told(job: MarksJob) -> None:
    file = job.write_file()
    job.produce(5)
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(1)
        batches = len(running.events.of_kind("batch"))
        job.change("limit", b"5")
        eventually(lambda: len(running.events.of_kind("batch")) > batches)
        for bad in (b"{", b'"many"', b"1.234", b"null", b"9" * 5000):
            job.change("limit", bad)

        def told() -> str:
            return "".join(each["text"] for each in running.events.of_kind("warning"))

        eventually(lambda: "(5 refused so far)" in told())
        job.produce(5)
        eventually(lambda: len(job.written()) == len(TOPICS) * job.sent)
        job.command("parameters unset", "limit")
        eventually(lambda: job.planned() == {})
        job.produce(5)
        eventually(lambda: len(job.written()) == len(TOPICS) * job.sent)
        job.command("parameters set", "limit", "6")
        eventually(lambda: job.heads()[-1].get("parameters") == {"limit": "6.00"})
    assert "parameter limit: expected at most 4096 bytes, found 5000" in told()
    limits = {offset // 5: limit for (_, offset), (limit, _) in job.check().items()}
    assert limits == {0: Decimal(100), 1: Decimal(5), 2: Decimal(100)}
    (limit,) = json.loads(job.command("parameters get", "limit", "--output", "json"))
    last = job.heads()[-1]["batch_id"]
    assert limit == {"name": "limit", "value": "6.00", "is_default": False, "since_batch": last}
    assert "mode = strict (default" in job.command("parameters get")
    assert "parameter limit: 6.00" in job.command("status")

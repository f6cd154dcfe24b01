"""A pipeline whose only source is of another package, killed and started again."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.crashpoints import CrashPoint
from onceflow.observe.diagnosis import diagnose
from onceflow.observe.facts import Facts
from onceflow.observe.survey import Survey
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine, run_here, run_until_it_fails
from tests.support.drivers.service import run_to_crash, started
from tests.support.jobs.copies import CopyJob
from tests.support.jobs.numbered_files import Files, importable, install
from tests.support.outside.judge import anomalies

POINTS = ("before_commit", "after_commit")
"""A batch that is not written, which is read again, and one that is, which is skipped."""
BATCH = 20
LINES = 30
"""Of each partition."""


@dataclass
class FilesJob(CopyJob):
    """Copies lines of files."""

    lines: list[str] = field(default_factory=list)

    def write_file(self, extra: str = "") -> Path:
        path = super().write_file(extra)
        kafka = f'kafka: {{pattern: "{self.name}-in-.", max_records_per_batch: 100}}'
        files = f"numbered-files: {{folder: input, max_records_per_batch: {BATCH}}}"
        assert kafka in path.read_text()
        path.write_text(path.read_text().replace(kafka, files))
        return path

    def check(self) -> None:
        """Every line is in the output once, and the ledger says the same."""
        assert self.values() == sorted(self.lines)
        heads = self.heads()
        assert anomalies(self.written(), heads) == []
        assert {*heads[-1]["sources"]["rows"]} == {"numbered-files:input"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    install(tmp_path / "package")
    return tmp_path / "package"


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> FilesJob:
    job = FilesJob(broker.bootstrap_servers, tmp_path)
    files = Files(tmp_path / "input")
    for partition in (0, 1):
        values = [f"{partition}-{line}" for line in range(LINES)]
        lines = [json.dumps({"k": value, "v": value}).encode() for value in values]
        files.append(partition, [(b"", line) for line in lines])
        job.lines += values
    return job


def test_lines_of_files_are_written_once_wherever_the_driver_dies(
    job: FilesJob, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = engine().open_session("").sparkContext
    monkeypatch.setitem(spark.environment, "PYTHONPATH", str(package))
    with importable(package):
        file = job.write_file()
        for point in POINTS:
            run_until_it_fails(file, job.bootstrap_servers, CrashPoint(point), 1)
        events = run_here(file, job.bootstrap_servers)
    job.check()
    # What no broker can tell is not told.
    assert {event["lag"] for event in events.of_kind("progress") if "lag" in event} <= {None}
    facts = look_at(job)
    assert facts.lag is None
    assert "numbered-files:input is not a topic" in facts.blind["input of source rows"]
    assert not any("nothing has been read" in finding.what for finding in diagnose(facts))


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_lines_of_files_are_written_once_whenever_the_process_is_killed(
    job: FilesJob, package: Path, tmp_path: Path
) -> None:
    environment, file = {"PYTHONPATH": str(package)}, job.write_file()
    for point in POINTS:
        crash = f"{point}:kill:1"
        run_to_crash(tmp_path / point, file, job.bootstrap_servers, crash, environment)
    with started(
        tmp_path / "last",
        file,
        job.bootstrap_servers,
        "--until",
        "caught-up",
        environment=environment,
    ) as service:
        assert service.wait() == 0, service.errors[-4000:]
    job.check()


def look_at(job: FilesJob) -> Facts:
    connector, connection = find_connector("kafka"), Connection(job.bootstrap_servers)
    with (
        closing(connector.ledger(job.name, connection)) as ledger,
        closing(connector.broker(connection)) as broker,
        closing(connector.bulletin_board(job.name, connection)) as board,
    ):
        return Survey(job.name, ledger, broker, board, SystemClock()).facts()

"""A pipeline whose only source is of another package, killed and started again."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.ops.diagnosis import diagnose
from onceflow.ops.facts import Facts
from onceflow.ops.survey import Survey
from tests.support import checkers
from tests.support.brokers import RunningBroker
from tests.support.copy_job import CopyJob
from tests.support.numbered_files import Files, install
from tests.support.service import run_to_crash, started

POINTS = ("before_commit", "after_commit")
"""A batch that is not written, which is read again, and one that is, which is skipped."""
BATCH = 20
LINES = 30
"""Of each partition."""


class FilesJob(CopyJob):
    """Copies lines of files."""

    def write_file(self, extra: str = "") -> Path:
        path = super().write_file(extra)
        kafka = f'kafka: {{pattern: "{self.name}-in-.", max_records_per_batch: 100}}'
        files = f"numbered-files: {{folder: input, max_records_per_batch: {BATCH}}}"
        assert kafka in path.read_text()
        path.write_text(path.read_text().replace(kafka, files))
        return path


def test_lines_of_files_are_written_once_whenever_the_driver_is_killed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    install(tmp_path / "package")
    environment = {"PYTHONPATH": str(tmp_path / "package")}
    job = FilesJob(broker.bootstrap_servers, tmp_path)
    file, files = job.write_file(), Files(tmp_path / "input")
    expected = []
    for partition in (0, 1):
        values = [f"{partition}-{line}" for line in range(LINES)]
        lines = [json.dumps({"k": value, "v": value}).encode() for value in values]
        files.append(partition, [(b"", line) for line in lines])
        expected += values
    for point in POINTS:
        run_to_crash(tmp_path / point, file, job.bootstrap_servers, f"{point}:kill:1", environment)
    with started(
        tmp_path / "last",
        file,
        job.bootstrap_servers,
        "--until",
        "caught-up",
        environment=environment,
    ) as service:
        assert service.wait() == 0, service.errors[-4000:]
    assert job.values() == sorted(expected)
    written, heads = job.written(), job.heads()
    assert not [
        *checkers.sequence_faults(written),
        *checkers.ledger_faults(heads, written),
        *checkers.torn_batches(heads, written),
    ]
    assert {*heads[-1]["plan"]["sources"]["rows"]} == {"numbered-files:input"}
    # What no broker can tell is not told.
    assert {event["lag"] for event in service.of_kind("progress") if "lag" in event} <= {None}
    facts = look_at(job)
    assert facts.lag is None
    assert "numbered-files:input is not a topic" in facts.blind["input of source rows"]
    assert not any("nothing has been read" in finding.what for finding in diagnose(facts))


def look_at(job: FilesJob) -> Facts:
    connector, connection = find_connector("kafka"), Connection(job.bootstrap_servers)
    with (
        closing(connector.ledger(job.name, connection)) as ledger,
        closing(connector.broker(connection)) as broker,
        closing(connector.bulletin_board(job.name, connection)) as board,
    ):
        return Survey(job.name, ledger, broker, board, SystemClock()).facts()

"""State, timers and waiting records of a processor move to more partitions, and into a fork."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.crashpoints import CrashPoint
from tests.faults.history.writes import Expected
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import QUICK, keep_engine, run_here, run_until_it_fails
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.job import Job
from tests.support.outside.judge import anomalies

SESSION = replace(QUICK, shuffle_partitions=2)
SETTINGS = {"spark": {**SESSION.__dict__, "max_result_bytes": "256 MiB"}}


def invoked(job: CardsJob, *command: str) -> dict[str, object]:
    config = job.folder / "onceflow.yaml"
    config.write_text(json.dumps(SETTINGS))
    where = ["--bootstrap-servers", job.bootstrap_servers, "--config", str(config), "-o", "json"]
    told = CliRunner().invoke(build_app(), [*command, *where])
    if told.exception is not None:
        raise told.exception
    return dict(json.loads(told.stdout))


def test_a_processor_moves_to_more_partitions_and_into_a_fork(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_engine(monkeypatch, SESSION)
    job = CardsJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(Random(7), 400, 120)
    file = job.write_file(100)
    run_here(file, job.bootstrap_servers, SESSION)

    wanted = ["--shuffle-partitions", "3", "--reason", "more cores"]
    moved = invoked(job, "state", "migrate", str(file), *wanted)
    file.write_text(file.read_text().replace(str(job.checkpoint), str(moved["checkpoint"])))
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 1, SESSION)
    job.produce(Random(8), 200, 60)
    run_here(file, job.bootstrap_servers, SESSION)

    at = job.heads()[-1]["batch_id"] - 1
    new = Job(job.bootstrap_servers, job.folder, f"{job.name}-b")
    told = invoked(
        job, "fork", str(file), "--at", str(at), "--name", new.name, "--topic", new.output_topic
    )
    before = [w for w in job.written() if w.batch_id <= at]
    job.close_windows()
    for each in (file, Path(str(told["file"]))):
        run_here(each, job.bootstrap_servers, SESSION)
    job.check()
    rest = [row for row in job.expected() if row not in [written.row for written in before]]
    assert 0 < len(rest) < len([*job.expected()])
    assert anomalies(new.written(), new.heads(), Expected.of_rows(rest)) == []

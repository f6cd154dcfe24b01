"""State moves to another number of partitions: no window is lost or repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError, LineageError
from onceflow.protocol.bulletin import RUNNING_KIND, Bulletin
from onceflow.runtime.checkpoint import checkpoint
from tests.support.drivers.here import QUICK, DeadError, keep_engine, run_here, run_until_it_fails
from tests.support.jobs.views import FIRST, MINUTE, ViewsJob
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import add_partitions

BATCH = 120
SESSION = replace(QUICK, shuffle_partitions=2)
SETTINGS = {"spark": {**SESSION.__dict__, "max_result_bytes": "256 MiB"}}

Migrating = Callable[..., dict[str, Any]]


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    (job.folder / "onceflow.yaml").write_text(json.dumps(SETTINGS))
    job.produce(Random(1), records=300, seconds=300)
    return job


@pytest.fixture
def migrate(job: ViewsJob, monkeypatch: pytest.MonkeyPatch) -> Migrating:
    keep_engine(monkeypatch, SESSION)

    def run(partitions: int, *more: str) -> dict[str, Any]:
        file, config = str(job.folder / "pipeline.yaml"), str(job.folder / "onceflow.yaml")
        where = ["--bootstrap-servers", job.bootstrap_servers, "--config", config, "-o", "json"]
        what = ["--shuffle-partitions", str(partitions), "--reason", "more cores", *more]
        told = CliRunner().invoke(build_app(), ["state", "migrate", file, *what, *where])
        if told.exception is not None:
            raise told.exception
        return dict(json.loads(told.stdout))

    return run


def partitions_of(location: str, batch_id: int) -> str:
    text = Path(location, "offsets", str(batch_id)).read_text()
    return str(json.loads(text.splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])


def go_on(job: ViewsJob, location: str, extra: str = "") -> Path:
    job.location = location
    return job.write_file(BATCH, extra)


def test_windows_go_on_in_more_and_in_fewer_partitions(job: ViewsJob, migrate: Migrating) -> None:
    servers = job.bootstrap_servers
    run_here(go_on(job, str(job.checkpoint)), servers, SESSION)
    # With the second one, the output moves to more partitions as well.
    for seed, (wanted, of_output) in enumerate(((3, 3), (2, 4))):
        old = job.heads()[-1]
        told = migrate(wanted)
        assert told["batch_id"] == old["batch_id"] + 1
        assert job.heads()[-1] == old
        assert partitions_of(job.location, old["batch_id"]) == str(5 - wanted)
        file = go_on(job, told["checkpoint"])
        file.write_text(file.read_text().replace("partitions: 3", f"partitions: {of_output}"))
        if of_output == 4:
            add_partitions(servers, job.output_topic, of_output)
        # Before its registration, and after it.
        point = CrashPoint.BEFORE_HEAD if of_output == 4 else CrashPoint.AFTER_COMMIT
        run_until_it_fails(file, servers, point, 1, SESSION)
        job.produce(Random(seed), records=200, seconds=200)
        run_here(file, servers, SESSION)
        moved = next(h for h in job.heads() if h["batch_id"] == told["batch_id"])
        assert moved["note"] == f"moved to {wanted} partitions of state: more cores"
        assert moved["origin"]["query_id"] == old["query_id"] != moved["query_id"]
        assert (moved["generation"], moved["totals"]) == (1, old["totals"])
        assert partitions_of(job.location, job.heads()[-1]["batch_id"]) == str(wanted)
    job.close_windows()
    run_here(file, servers, SESSION)
    job.check()
    assert {written.partition for written in job.written()} == {0, 1, 2, 3}
    rows = [written.row for written in job.written()]
    assert job.heads()[-1]["totals"]["written"] == len(rows) == len(job.expected())
    verified = ["ledger", "verify", job.name, "--bootstrap-servers", servers]
    assert CliRunner().invoke(build_app(), verified).exit_code == 0


def test_a_migration_that_dies_is_done_again(job: ViewsJob, migrate: Migrating) -> None:
    servers = job.bootstrap_servers
    run_here(go_on(job, str(job.checkpoint)), servers, SESSION)

    def reach(point: CrashPoint) -> None:
        raise DeadError("died on purpose")

    new = f"{job.location}-3"
    after_spark = patch.object(checkpoint.Checkpoint, "begin", side_effect=DeadError("on purpose"))
    deaths: list[AbstractContextManager[Any]] = [
        patch.object(checkpoint, "reach", reach),
        after_spark,
    ]
    for death in deaths:
        with death, pytest.raises(DeadError):
            migrate(3)
        with pytest.raises(LineageError, match="`onceflow state migrate` again"):
            run_here(go_on(job, new), servers, SESSION)
        go_on(job, str(job.checkpoint))
    told = migrate(3)
    assert migrate(3) == {**told, "state": {}}

    # It ran on the old checkpoint since: what was moved is no longer of use.
    job.close_windows()
    run_here(go_on(job, str(job.checkpoint)), servers, SESSION)
    with pytest.raises(LineageError, match="has gone on since its state was moved"):
        run_here(go_on(job, new), servers, SESSION)
    job.check()


def test_what_cannot_be_migrated(job: ViewsJob, migrate: Migrating) -> None:
    servers = job.bootstrap_servers
    file = go_on(job, str(job.checkpoint))
    run_until_it_fails(file, servers, CrashPoint.AFTER_COMMIT, 3, SESSION)

    def refused(why: str, partitions: int = 3) -> None:
        with pytest.raises(ConfigError, match=why):
            migrate(partitions)
        assert not Path(f"{job.location}-3").exists()

    refused("something left to finish.*found planned batch 1, done batch 0")
    run_here(file, servers, SESSION)
    refused("the state has as many already.*found 2 partitions", 2)
    file.write_text(file.read_text().replace("1 minute", "2 minutes"))
    refused("this is not the query that wrote the last batch")
    go_on(job, str(job.checkpoint))
    board = find_connector("kafka").bulletin_board(job.name, Connection(servers))
    bulletin = Bulletin("run", "host-a", SystemClock().unix_ms())
    board.post(RUNNING_KIND, bulletin.to_json())
    board.settle(SystemClock().within(10))
    board.close()
    refused("the pipeline is running.*found one on host-a")


CHANGE = """\
def with_largest(key, value):
    return key, {**value, "max": 0}


def wrong_name(key, value):
    return key, {**value, "largest": 0}


def wrong_type(key, value):
    return key, {**value, "max": "zero"}


def same_key(key, value):
    return {**key, "page": "/one"}, {**value, "max": 0}


def failing(key, value):
    return key, {**value, "max": value["no"]}
"""


def test_windows_go_on_in_a_query_with_another_column(job: ViewsJob, migrate: Migrating) -> None:
    servers = job.bootstrap_servers
    run_here(go_on(job, str(job.checkpoint)), servers, SESSION)
    old = len(job.produced)
    module = f"change_{job.name.replace('-', '_')}"
    (job.folder / f"{module}.py").write_text(CHANGE)
    file = job.folder / "pipeline.yaml"
    text = file.read_text().replace(
        "sum(ms) AS total_ms", "sum(ms) AS total_ms, max(ms) AS largest"
    )
    file.write_text(text)
    with pytest.raises(ConfigError, match="value column 3, max bigint, is new"):
        run_here(file, servers, SESSION, is_change_accepted=True, reason="a test")
    for name, why in {
        "wrong_name": "wrong_name, key .*/.*; expected .*max: int64.*; found columns .*largest",
        "wrong_type": "cannot be stored.*key .*zero",
        "same_key": "two rows for one key.*same_key",
        "failing": "the function failed.*KeyError: 'no'",
    }.items():
        with pytest.raises(ConfigError, match=why):
            migrate(3, "--with", f"{module}:{name}")
        assert not Path(f"{job.location}-{name}").exists()
    told = migrate(3, "--with", f"{module}:with_largest")
    file.write_text(text.replace(job.location, told["checkpoint"]))
    job.produce(Random(3), records=100, seconds=100)
    job.close_windows()
    run_here(file, servers, SESSION)
    largest: dict[tuple[str, str], int] = {}
    for view in job.produced[old:]:
        start = FIRST + (view.at - FIRST) // MINUTE * MINUTE
        cell = view.page, start.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        largest[cell] = max(view.ms, largest.get(cell, 0))
    rows = [written.row for written in job.written()]
    found = [row.pop("largest", None) for row in rows]
    assert anomalies(job.written(), job.heads()) == []
    assert sorted(map(str, rows)) == sorted(map(str, job.expected()))
    assert None in found
    for row, of_window in zip(rows, found, strict=True):
        if of_window is not None:
            assert of_window == largest.get((row["page"], row["start"]), 0)

"""A pipeline is forked after a batch: no window is lost or repeated, on either side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError, LineageError
from onceflow.protocol.compare import Remedy
from onceflow.runtime.checkpoint import checkpoint
from tests.faults.history.writes import Expected
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import (
    QUICK,
    DeadError,
    run_here,
    run_until_it_fails,
    running_here,
)
from tests.support.jobs.job import Job
from tests.support.jobs.views import ViewsJob
from tests.support.outside.judge import account_faults, anomalies
from tests.support.outside.topics import delete_topic, find_topic

SETTINGS = {"spark": QUICK.__dict__}
BATCH = 80


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    return begun(job)


@pytest.fixture(scope="module")
def ended(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> ViewsJob:
    """A pipeline that has read its input: a fork leaves it as it is, so several tests share it."""
    job = ViewsJob(broker.bootstrap_servers, tmp_path_factory.mktemp("ended"))
    job.create_input()
    begun(job)
    run_here(job.write_file(BATCH), job.bootstrap_servers)
    return job


def begun(job: ViewsJob) -> ViewsJob:
    (job.folder / "onceflow.yaml").write_text(json.dumps(SETTINGS))
    job.produce(Random(1), records=400, seconds=400)
    return job


def fork(origin: Job, batch_id: int, new: Job, *more: str) -> dict[str, Any]:
    """`onceflow fork` of a pipeline; its errors come out as they are."""
    where = ["--bootstrap-servers", origin.bootstrap_servers]
    config = ["--config", str(origin.folder / "onceflow.yaml"), "-o", "json"]
    what = [str(file_of(origin)), "--at", str(batch_id), "--name", new.name]
    topic = more or ("--topic", new.output_topic)
    told = CliRunner().invoke(build_app(), ["fork", *what, *topic, *where, *config])
    if told.exception is not None:
        raise told.exception
    return dict(json.loads(told.stdout))


def file_of(of: Job) -> Path:
    return of.folder / ("pipeline.yaml" if isinstance(of, ViewsJob) else f"{of.name}.yaml")


def forked(job: ViewsJob, name: str) -> Job:
    return Job(job.bootstrap_servers, job.folder, f"{job.name}-{name}")


def file_text(job: ViewsJob, new: Job) -> str:
    """As `fork` would write it, but by another way."""
    text = file_of(job).read_text()
    for old, other in (
        (job.output_topic, new.output_topic),
        (f"name: {job.name}", f"name: {new.name}"),
        (str(job.checkpoint), str(job.folder / new.name)),
    ):
        text = text.replace(old, other)
    return text


def rows_up_to(of: Job, batch_id: int) -> list[dict[str, Any]]:
    return [written.row for written in of.written() if written.batch_id <= batch_id]


def is_whole(job: ViewsJob, fork: Job, before: Sequence[Mapping[str, Any]]) -> None:
    """With what came `before` in its origins, the output of a fork is all of the oracle's."""
    known = [*before]
    rest = [row for row in job.expected() if row not in known]
    assert len(rest) + len(known) == len(job.expected())
    heads = fork.heads()
    assert not anomalies(fork.written(), heads, Expected.of_rows(rest))
    assert {written.sequence for written in fork.written()} >= {1}
    read = sum(head["records"]["read"] for head in heads)
    counts = {"read": read, "late": 0, "rejected": 0, "written": len(rest)}
    assert not account_faults(heads, counts)


def test_original_and_forks_go_on_with_every_window(job: ViewsJob) -> None:
    servers, file = job.bootstrap_servers, job.write_file(BATCH)
    run_here(file, servers)
    # Windows are open, of views in batches before and after it.
    at = job.heads()[-2]["batch_id"]
    first, second = forked(job, "first"), forked(job, "second")
    told = fork(job, at, first)
    assert told["origin"]["batch_id"] == at
    assert told["checkpoint"] == str(job.folder / first.name)

    with running_here(file, servers) as running:
        job.produce(Random(2), records=200, seconds=200)
        running.wait_for_batches(1)
        run_here(file_of(first), servers)
    began, *batches = first.heads()
    assert (began["batch_id"], began["generation"], began["sink"]["sequence"]) == (at, 1, {})
    assert began["origin"]["pipeline"] == job.name
    assert began["note"] == f"forked after batch {at} of {job.name}, generation 1"
    assert batches[0]["batch_id"] == at + 1

    # Of the fork in turn, while that runs; and at its first position, where it has no batch.
    middle = batches[0]["batch_id"]
    third = forked(job, "third")
    with running_here(file_of(first), servers):
        fork(first, middle, second)
        fork(first, at, third)
        job.close_windows()
    for each in (file, *map(file_of, (first, second, third))):
        run_here(each, servers)
    job.check()
    before = rows_up_to(job, at)
    assert before
    is_whole(job, first, before)
    is_whole(job, third, before)
    is_whole(job, second, before + rows_up_to(first, middle))
    verified = ["ledger", "verify", second.name, "--bootstrap-servers", servers]
    assert CliRunner().invoke(build_app(), verified).exit_code == 0


def test_a_dead_pipeline_is_forked_and_its_ledger_left_alone(job: ViewsJob) -> None:
    servers, file = job.bootstrap_servers, job.write_file(BATCH)
    run_until_it_fails(file, servers, CrashPoint.BEFORE_COMMIT, 5)
    new = forked(job, "new")
    fork(job, 2, new)
    job.close_windows()
    run_here(file_of(new), servers)
    run_here(file, servers)
    before = rows_up_to(job, 2)
    assert before
    is_whole(job, new, before)
    job.check()


def test_a_fork_that_dies_leaves_nothing_that_starts_and_is_done_again(ended: ViewsJob) -> None:
    job, servers = ended, ended.bootstrap_servers
    at, new = job.heads()[-2]["batch_id"], forked(job, "dies")
    left: list[None] = []

    def reach(point: CrashPoint) -> None:
        if point is CrashPoint.MID_FORK and not (left and [left.pop()]):
            raise DeadError("died on purpose")

    for arrivals in (0, 5):
        left[:] = [None] * arrivals
        with patch.object(checkpoint, "reach", reach), pytest.raises(DeadError):
            fork(job, at, new)
        assert not file_of(new).exists()
        # As if its file had been there before.
        file_of(new).write_text(file_text(job, new))
        with pytest.raises(LineageError, match="run the same `onceflow fork`"):
            run_here(file_of(new), servers)
        file_of(new).unlink()
        assert find_topic(servers, new.ledger_topic) is None

    told = fork(job, at, new)
    copied = sorted((job.folder / new.name).rglob("*"))
    assert fork(job, at, new) == told
    assert sorted((job.folder / new.name).rglob("*")) == copied
    with pytest.raises(
        ConfigError, match=f"found one that was forked after batch {at} of {job.name}"
    ):
        fork(job, at - 1, new)
    before = rows_up_to(job, at)
    job.close_windows()
    # The first starts die before and after the registration.
    for point in (CrashPoint.BEFORE_HEAD, CrashPoint.AFTER_COMMIT):
        run_until_it_fails(file_of(new), servers, point, 1)
    run_here(file_of(new), servers)
    is_whole(job, new, before)


def test_what_cannot_be_forked(ended: ViewsJob) -> None:
    job, servers = ended, ended.bootstrap_servers
    last, new = job.heads()[-1]["batch_id"], forked(job, "refused")
    same = Job(servers, job.folder, job.name)
    file_of(same).write_text(file_of(job).read_text())

    def refused(why: str, at: int = last, *more: str, of: Job = new) -> None:
        with pytest.raises(ConfigError, match=why):
            fork(job, at, of, *more)
        assert not (job.folder / new.name).exists()
        assert find_topic(servers, new.ledger_topic) is None

    refused(rf"batch {last + 1} of .* expected one from 0 to {last}", last + 1)
    refused("other values of sink.kafka.topic than", last, "--topic", job.output_topic)
    refused("unusable pipeline name", of=Job(servers, job.folder, "No_Name"))
    refused("other values of name, sink.kafka.topic, checkpoint than", of=same)

    given = file_text(job, new)
    for wrong, why in {
        given.replace("1 minute", "2 minutes"): r"the query of its origin.* changes of query;",
        given.replace(new.name, f"{job.name}-b"): f"expected {new.name}, as --name says",
        given.replace("partitions: 3", "partitions: x"): "pipeline file refused",
    }.items():
        file_of(new).write_text(wrong)
        refused(why)
    file_of(new).write_text(given)
    refused("expected elsewhere, as --topic says", last, "--topic", "elsewhere")

    mine = job.folder / new.name / "mine"
    mine.parent.mkdir()
    mine.write_text("")
    with pytest.raises(ConfigError, match=r"there is a checkpoint already: .* found other files"):
        fork(job, last, new)
    assert [*mine.parent.iterdir()] == [mine]


def test_what_a_fork_does_not_start_with(ended: ViewsJob) -> None:
    job, servers = ended, ended.bootstrap_servers
    last, new = job.heads()[-1]["batch_id"], forked(job, "changed")
    given = file_text(job, new)
    file_of(new).write_text(given)
    fork(job, last, new)

    file_of(new).write_text(given.replace("1 minute", "2 minutes"))
    with pytest.raises(ConfigError, match="this is not the query that wrote the last batch"):
        run_here(file_of(new), servers)
    file_of(new).write_text(given)
    with pytest.raises(LineageError, match="this remedy does not apply"):
        run_here(file_of(new), servers, remedy=Remedy.NEW_GENERATION, reason="a test")
    assert find_topic(servers, new.ledger_topic) is None

    # Output of the same name, of which the ledger was lost.
    job.close_windows()
    run_here(file_of(new), servers)
    written = len(new.written())
    assert written
    with pytest.raises(ConfigError, match="a pipeline of this name has run already"):
        fork(job, last, new)
    delete_topic(servers, new.ledger_topic)
    shutil.rmtree(job.folder / new.name)
    with pytest.raises(ConfigError, match="the output holds records of a pipeline of this name"):
        fork(job, last, new)
    file_of(new).write_text(given.replace(new.output_topic, f"{new.name}-other"))
    fork(job, last, new, "--topic", f"{new.name}-other")
    file_of(new).write_text(given)
    with pytest.raises(LineageError, match="with the name of this fork"):
        run_here(file_of(new), servers, is_change_accepted=True, reason="a test")
    assert len(new.written()) == written

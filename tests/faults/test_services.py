"""Many pipelines in one process: what happens to one is not felt by the others."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from random import Random

import pytest

from tests.support.brokers import RunningBroker
from tests.support.here import finish
from tests.support.service import Service, started
from tests.support.topics import delete_topic
from tests.support.views_job import ViewsJob

REFUSED = 2
KEY = "-----BEGIN PRIVATE KEY-----not-to-be-read"
PATIENT = "restart: {delay: 1 s, max_delay: 1 s, attempts: 100}\n"


def new_job(broker: RunningBroker, folder: Path) -> ViewsJob:
    folder.mkdir()
    made = ViewsJob(broker.bootstrap_servers, folder)
    made.create_input()
    made.produce(Random(1), records=1_000, seconds=100)
    return made


@pytest.fixture
def jobs(broker: RunningBroker, tmp_path: Path) -> list[ViewsJob]:
    return [new_job(broker, tmp_path / f"job{number}") for number in range(3)]


def together(jobs: list[ViewsJob], folder: Path, extra: str = "") -> Path:
    """Their files in one folder, as a ConfigMap would have them."""
    folder.mkdir()
    for job in jobs:
        job.write_file(extra=extra).rename(folder / f"{job.name}.yaml")
    return folder


def with_hostile_file(job: ViewsJob, folder: Path) -> Path:
    """A pipeline that would show a file of the machine as the name of a column."""
    key = job.folder / "key.pem"
    key.write_text(KEY)
    text = (folder / f"{job.name}.yaml").read_text()
    query = f"SELECT * FROM csv.`{key}` WITH ('header'='true', 'lineSep'='|')"
    text = re.sub(r"  SELECT.*\n  FROM.*", f"  {query}", text)
    text = text.replace(f"name: {job.name}\n", "name: hostile\n")
    text = text.replace(job.output_topic, f"{job.output_topic}-hostile")
    hostile = folder / "hostile.yaml"
    hostile.write_text(text.replace(str(job.checkpoint), f"{job.checkpoint}-hostile"))
    return hostile


def drained(service: Service) -> None:
    service.send(signal.SIGTERM)
    assert service.wait() == 0, service.errors[-3000:]


def test_pipelines_that_fail_for_good_leave_the_others_running(
    jobs: list[ViewsJob], tmp_path: Path
) -> None:
    """A broken file, two files with one name, and an output that somebody else makes anew."""
    victim, *others = jobs
    files = together(jobs, tmp_path / "pipelines")
    faulty = files / "a-broken-file.yaml"
    faulty.write_text("apiVersion: onceflow/v1\nname: [")
    hostile = with_hostile_file(victim, files)
    text = (files / f"{victim.name}.yaml").read_text()
    twins = [files / "one.yaml", files / "two.yaml"]
    for twin in twins:
        twin.write_text(text.replace(victim.name, "twin").replace(str(victim.folder), str(files)))
    with started(tmp_path / "serve", files, victim.bootstrap_servers, command="serve") as service:
        for job in jobs:
            service.wait_for_batches(1, job.name)
        # Its output is made anew by somebody else: the ledger knows another topic.
        delete_topic(victim.bootstrap_servers, victim.output_topic)
        victim.produce(Random(2), records=200, seconds=20)
        service.wait_for("failed", pipeline=victim.name)
        before = {job.name: len(service.of_kind("batch", job.name)) for job in others}
        for job in others:
            job.produce(Random(3), records=200, seconds=20)
            service.wait_for_batches(before[job.name] + 1, job.name)
        drained(service)
    refused_twins = [f"twin@{file.stem}" for file in twins]
    for name in (faulty.stem, hostile.stem, *refused_twins):
        (refused,) = service.of_kind("failed", name)
        assert refused["exit_code"] == REFUSED
        assert ("the same name" in refused["text"]) == (name in refused_twins)
    assert "only the sources clicks" in str(service.of_kind("failed", hostile.stem))
    assert KEY not in f"{service.events}{service.errors}"
    assert not service.of_kind("waiting", victim.name)
    for job in others:
        assert not service.of_kind("failed", job.name)
        finish(job, files / f"{job.name}.yaml")


def test_a_pipeline_whose_failure_may_pass_goes_on_by_itself(
    jobs: list[ViewsJob], tmp_path: Path
) -> None:
    """Batches fail while a folder of the checkpoint is not there, such as on a lost mount."""
    victim, other, _ = jobs
    files = together([victim, other], tmp_path / "pipelines", PATIENT)
    with started(tmp_path / "serve", files, victim.bootstrap_servers, command="serve") as service:
        for job in (victim, other):
            service.wait_for_batches(1, job.name)
        blocked = victim.checkpoint / "offsets"
        aside = victim.checkpoint / "offsets-aside"
        blocked.rename(aside)
        blocked.write_text("a file where a folder should be")
        victim.produce(Random(2), records=200, seconds=20)
        service.wait_for("failed", pipeline=victim.name)
        blocked.unlink()
        aside.rename(blocked)
        before = len(service.of_kind("batch", victim.name))
        service.wait_for_batches(before + 1, victim.name)
        drained(service)
    assert service.of_kind("waiting", victim.name)
    assert not service.of_kind("failed", other.name)
    for job in (victim, other):
        finish(job, files / f"{job.name}.yaml")


def test_when_no_pipeline_is_left_the_process_ends_with_the_reason(
    broker: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "one.yaml").write_text("name: 7")
    servers = broker.bootstrap_servers
    with started(tmp_path / "serve", tmp_path / "pipelines", servers, command="serve") as service:
        assert service.wait() == REFUSED
    assert "apiVersion" in service.errors

"""Many pipelines in one process: what happens to one is not felt by the others."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish
from tests.support.drivers.service import started
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import delete_topic

pytestmark = pytest.mark.crash

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


def test_what_happens_to_one_pipeline_is_not_felt_by_the_others(
    jobs: list[ViewsJob], tmp_path: Path
) -> None:
    """A broken file, a hostile one, two with one name; a replaced output; a lost mount.

    All but the last fail for good. What may pass goes on by itself.
    """
    victim, other, unmounted = jobs
    files = together(jobs, tmp_path / "pipelines", PATIENT)
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
        # Another user creates its output again: the ledger knows another topic.
        delete_topic(victim.bootstrap_servers, victim.output_topic)
        victim.produce(Random(2), records=200, seconds=20)
        # Batches fail while a folder of the checkpoint is not there, such as on a lost mount.
        offsets, aside = unmounted.checkpoint / "offsets", unmounted.checkpoint / "offsets-aside"
        offsets.rename(aside)
        offsets.write_text("a file where a folder should be")
        unmounted.produce(Random(2), records=200, seconds=20)
        for job in (victim, unmounted):
            service.wait_for("failed", pipeline=job.name)
        before = len(service.of_kind("batch", other.name))
        other.produce(Random(3), records=200, seconds=20)
        service.wait_for_batches(before + 1, other.name)
        before = len(service.of_kind("batch", unmounted.name))
        offsets.unlink()
        aside.rename(offsets)
        service.wait_for_batches(before + 1, unmounted.name)
        service.drain()
    refused_twins = [f"twin@{file.stem}" for file in twins]
    for name in (faulty.stem, hostile.stem, *refused_twins):
        (refused,) = service.of_kind("failed", name)
        assert refused["exit_code"] == REFUSED
        assert ("the same name" in refused["text"]) == (name in refused_twins)
    assert "only the sources clicks" in str(service.of_kind("failed", hostile.stem))
    assert KEY not in f"{service.events}{service.errors}"
    assert not service.of_kind("waiting", victim.name)
    assert service.of_kind("waiting", unmounted.name)
    assert not service.of_kind("failed", other.name)
    for job in (other, unmounted):
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

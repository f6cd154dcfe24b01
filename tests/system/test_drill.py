"""The disaster recovery drill: what goes wrong at night, with the image as Kubernetes runs it.

docs/operations.md has the results.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from testcontainers.core.docker_client import DockerClient

from onceflow.settings import Settings
from tests.support import checkers
from tests.support.brokers import RunningBroker
from tests.support.cluster_disk import small_disk
from tests.support.eventually import eventually
from tests.support.here import finish, run_here
from tests.support.history import read_ledger, read_topic
from tests.support.secured_broker import grant_to_run, secured_broker, settings_by_certificate
from tests.support.service import LOST_WITH_THE_TEST
from tests.support.service_container import (
    IMAGE,
    USER,
    ServiceContainer,
    folder_of_the_user,
    serving,
)
from tests.support.token_endpoint import TokenEndpoint
from tests.support.topics import readable_to_the_end
from tests.support.views_job import ViewsJob

ROOT = Path(__file__).parents[2]
OLDER = "ONCEFLOW_TEST_OLDER"
"""Revision of this repository for the older image; left out: today's, under another version."""
OLDER_IMAGE = "onceflow:older"
PACKAGES = "/opt/onceflow/lib/python3.11/site-packages"
LOST_CHECKPOINT = 7
RECORDS_PER_STEP = 600


@pytest.fixture
def job(broker: RunningBroker) -> Iterator[ViewsJob]:
    with folder_of_the_user() as folder:
        yield prepared(ViewsJob(broker.bootstrap_servers, folder))


def prepared(job: ViewsJob) -> ViewsJob:
    job.create_input()
    job.produce(Random(1), records=1_500, seconds=150)
    return job


def command(job: ViewsJob, name: str = "serve") -> list[str]:
    file = str(job.write_file(batch=100))
    return [name, file, "--bootstrap-servers", job.bootstrap_servers]


def has_read_all(job: ViewsJob) -> bool:
    heads = read_ledger(job.bootstrap_servers, job.name)
    return bool(sum(head["records"]["read"] for head in heads) == len(job.produced))


def wait_for_all(job: ViewsJob, service: ServiceContainer) -> None:
    """Until all that was produced is committed; fails if the service ends before."""
    eventually(lambda: has_read_all(job) or not service.is_running, timeout_s=120)
    assert has_read_all(job), service.output[-2000:] + service.errors[-2000:]


def test_the_pod_is_killed_three_times(job: ViewsJob) -> None:
    for number in range(3):
        with serving(command(job), {job.folder: str(job.folder)}) as service:
            service.wait_for("batch", 2)
            service.kill()
        job.produce(Random(number), records=RECORDS_PER_STEP, seconds=60)
    with serving(command(job), {job.folder: str(job.folder)}) as service:
        wait_for_all(job, service)
        assert service.stop() == 0
    assert readable_to_the_end(job.bootstrap_servers, job.output_topic)
    finish(job, job.write_file())


def test_the_image_is_upgraded_and_rolled_back(job: ViewsJob) -> None:
    """On one checkpoint; each drains for the next."""
    build_older_image()
    versions = []
    for number, image in enumerate([OLDER_IMAGE, IMAGE, OLDER_IMAGE]):
        with serving(command(job), {job.folder: str(job.folder)}, image=image) as service:
            service.wait_for("batch", 2)
            wait_for_all(job, service)
            told = service.container.exec_run(["onceflow", "version"]).output.decode().split()
            versions.append(told[-1])
            assert service.stop() == 0, service.errors[-2000:]
            assert service.of_kind("drained")
            assert not service.of_kind("failed")
        job.produce(Random(number), records=RECORDS_PER_STEP, seconds=60)
    assert versions[0] == versions[2] != versions[1]
    finish(job, job.write_file())


def build_older_image() -> None:
    """Today's with the code of an older revision, or at least another version, in it."""
    recipe = f"FROM {IMAGE}\nUSER root\nRUN cd {PACKAGES} && sed -i s/^Version:.*/Version:\\ 0.0.9/"
    recipe += " onceflow-*.dist-info/METADATA && mv onceflow-*.dist-info onceflow-0.0.9.dist-info\n"
    files: dict[str, bytes] = {}
    if revision := os.environ.get(OLDER):
        files = code_of(revision)
        for folder in ("service/onceflow", "connectors/onceflow_connectors"):
            installed = f"{PACKAGES}/{Path(folder).name}"
            recipe += f"RUN rm -r {installed}\nCOPY {folder} {installed}\n"
    files["Dockerfile"] = f"{recipe}USER {USER}:{USER}\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    context.seek(0)
    client = DockerClient().client
    client.images.build(fileobj=context, custom_context=True, tag=OLDER_IMAGE, rm=True)
    client.close()


def code_of(revision: str) -> dict[str, bytes]:
    """Our packages as they were."""
    command = ["git", "archive", revision, "service/onceflow", "connectors/onceflow_connectors"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(told)) as archive:
        opened = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in opened if file is not None}


def test_the_disk_of_the_checkpoint_is_full(job: ViewsJob) -> None:
    """It fails, waits, and goes on by itself when there is room again."""
    with small_disk(job.folder / "disk") as disk:
        os.chown(disk.folder, USER, USER)
        job.folder = disk.folder
        volumes = {disk.folder: str(disk.folder)}
        with serving(command(job), volumes, LOST_WITH_THE_TEST) as service:
            service.wait_for("batch", 2)
            disk.fill()
            job.produce(Random(2), records=RECORDS_PER_STEP, seconds=60)
            service.wait_for("failed")
            assert "disk is full" in service.of_kind("failed")[0]["text"]
            service.wait_for("waiting")
            disk.free()
            wait_for_all(job, service)
            assert service.stop() == 0
        finish(job, job.write_file())


def test_the_volume_of_the_checkpoint_is_lost(job: ViewsJob) -> None:
    """It is refused rather than begun anew by itself, until a person says so."""
    volumes = {job.folder: str(job.folder)}
    with serving(command(job), volumes) as service:
        service.wait_for("batch", 2)
        wait_for_all(job, service)
        service.kill()
    shutil.rmtree(job.checkpoint)
    with serving(command(job), volumes) as service:
        assert service.wait() == LOST_CHECKPOINT
        assert "under another checkpoint" in service.output
    job.close_windows()
    remedy = ["--new-generation", "--reason", "volume lost in a drill", "--until", "caught-up"]
    with serving([*command(job, "run"), *remedy], volumes) as service:
        assert service.wait() == 0, service.errors[-2000:]
    rows = [written.row for written in read_topic(job.bootstrap_servers, job.output_topic)]
    assert checkers.lost_writes(job.expected(), rows) == []
    assert read_ledger(job.bootstrap_servers, job.name)[-1]["generation"] == 2


def test_a_certificate_is_renewed(tmp_path: Path) -> None:
    """The old one is of somebody who may do nothing any more, soon after."""
    tokens = TokenEndpoint({})
    with secured_broker(tmp_path, tokens) as broker, folder_of_the_user() as folder:
        job = prepared(ViewsJob(broker.bootstrap_servers, folder))
        file = job.write_file(batch=100)
        grant_to_run(broker, file, "pod-1", "pod-2")
        settings = settings_by_certificate(broker, folder, "pod-1")
        variables = {
            "ONCEFLOW_BOOTSTRAP_SERVERS": settings["bootstrap_servers"],
            **{f"ONCEFLOW_TLS__{name.upper()}": text for name, text in settings["tls"].items()},
        }
        with serving(["serve", str(file)], {folder: str(folder)}, variables) as service:
            service.wait_for("batch", 2)
            settings_by_certificate(broker, folder, "pod-2")
            service.wait_for("renewed")
            service.wait_for("running", 2)
            broker.revoke_all("User:pod-1")
            job.produce(Random(2), records=RECORDS_PER_STEP, seconds=60)
            wait_for_all(job, service)
            assert service.stop() == 0
            assert not service.of_kind("failed")
        job.close_windows()
        run_here(file, Settings.model_validate(settings).connection())
        job.check()

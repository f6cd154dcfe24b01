"""The image is upgraded and rolled back, as Kubernetes does it. A part of the drill."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from random import Random

from testcontainers.core.docker_client import DockerClient

from tests.support.drivers.here import finish
from tests.support.drivers.service_container import IMAGE, USER, serving
from tests.support.jobs.contained import RECORDS_PER_STEP, command, wait_for_all
from tests.support.jobs.views import ViewsJob
from tests.support.revisions import PACKAGES as OURS
from tests.support.revisions import packages_of

OLDER = "ONCEFLOW_TEST_OLDER"
"""Revision of this repository for the older image; left out: today's, under another version."""
OLDER_IMAGE = "onceflow:older"
PACKAGES = "/opt/onceflow/lib/python3.11/site-packages"


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
        for folder in OURS:
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
    with packages_of(revision) as archive:
        opened = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in opened if file is not None}

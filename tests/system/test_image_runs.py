"""Pipelines in the image of the service, locked down, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import finish
from tests.support.drivers.service_container import USER, folder_of_the_user, serving
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import readable_to_the_end

FREEZE = "import os, signal; os.kill(-1, signal.SIGSTOP)"
"""A signal to all processes leaves out the sender, and the first of a container."""


@pytest.fixture
def job(broker: RunningBroker) -> Iterator[ViewsJob]:
    with folder_of_the_user() as folder:
        made = ViewsJob(broker.bootstrap_servers, folder)
        made.create_input()
        made.produce(Random(1), records=3_000, seconds=300)
        yield made


def test_it_runs_a_pipeline_and_drains(job: ViewsJob) -> None:
    """SIGTERM in mid-stream: the batch is committed, nothing is left open, nothing is replayed."""
    file = job.write_file(batch=300)
    command = ["serve", str(file), "--bootstrap-servers", job.bootstrap_servers]
    with serving(command, {job.folder: str(job.folder)}) as service:
        service.wait_for("batch", 3)
        top = service.container.top()
        uids = {process[top["Titles"].index("UID")] for process in top["Processes"]}
        assert service.container.attrs["HostConfig"]["ReadonlyRootfs"] is True
        assert service.stop() == 0, service.errors[-2000:]
        assert service.of_kind("drained")
    assert len(uids) == 1
    assert str(USER) in uids or "root" not in uids
    assert readable_to_the_end(job.bootstrap_servers, job.output_topic)
    finish(job, file)


def test_health_is_that_of_the_service(job: ViewsJob) -> None:
    file = job.write_file(batch=300)
    command = ["serve", str(file), "--bootstrap-servers", job.bootstrap_servers]
    port = {"ONCEFLOW_MONITORING__PORT": "29464"}
    with serving(command, {job.folder: str(job.folder)}, port) as service:
        service.wait_for("batch")
        assert service.container.exec_run("onceflow-health").exit_code == 0
        # Every process but the one that asks: nothing answers any more.
        froze = service.container.exec_run(["python3", "-c", FREEZE])
        assert froze.exit_code == 0, froze.output
        assert service.container.exec_run("onceflow-health").exit_code == 1

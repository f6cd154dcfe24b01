"""The disaster recovery drill: what goes wrong at night, with the image as Kubernetes runs it.

docs/operations.md has the results.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from onceflow.settings import Settings
from tests.faults.history.writes import Expected
from tests.support.brokers.secured import grant_to_run, secured_broker, settings_by_certificate
from tests.support.brokers.small_disk import small_disk
from tests.support.drivers.here import finish, run_here
from tests.support.drivers.service import LOST_WITH_THE_TEST
from tests.support.drivers.service_container import USER, folder_of_the_user, serving
from tests.support.jobs.contained import RECORDS_PER_STEP, command, prepared, wait_for_all
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import readable_to_the_end
from tests.support.sites.token_endpoint import TokenEndpoint

LOST_CHECKPOINT = 7


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
    """A start is refused, rather than begun again by itself, until an operator says so."""
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
    written = read_topic(job.bootstrap_servers, job.output_topic)
    found = anomalies(written, expected=Expected.of_rows(job.expected()))
    assert "lost_write" not in {anomaly.name for anomaly in found}
    assert read_ledger(job.bootstrap_servers, job.name)[-1]["generation"] == 2


def test_a_certificate_is_renewed(tmp_path: Path) -> None:
    """The old certificate is of a user who soon loses all rights."""
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

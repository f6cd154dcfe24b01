"""A full disk under the checkpoint, and a death while Spark uploads a snapshot of its state."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from onceflow.app import RunOptions
from onceflow.clock import Clock, SystemClock
from onceflow.errors import RetriableError
from tests.support.brokers.choice import RunningBroker
from tests.support.brokers.small_disk import SmallDisk, small_disk
from tests.support.drivers.here import application, run_here
from tests.support.drivers.service import QUICK_CONF, Service, started
from tests.support.eventually import eventually
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob

START_TIMEOUT_S = 200.0
UPLOAD_TIMEOUT_S = 120.0
LOOK_INTERVAL_S = 0.0002
"""An upload takes some milliseconds."""
SMALL_BATCH = 60
SNAPSHOT_OF_EACH_BATCH = {
    **QUICK_CONF,
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "50ms",
}
NEVER = RunOptions()
"""Runs until it is told to end, or fails."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def job(
    broker: RunningBroker, disk: SmallDisk, stateful: type[ViewsJob | CardsJob]
) -> ViewsJob | CardsJob:
    """Its checkpoint is on the small disk."""
    # The product resolves its path, and a path below /proc would lead off the disk.
    assert disk.folder == disk.folder.resolve(), "root is needed, to mount a small disk"
    made = stateful(broker.bootstrap_servers, disk.folder)
    made.create_input()
    made.produce(Random(1), records=1_000, seconds=120)
    return made


def test_a_full_disk_stops_a_running_pipeline_and_nothing_is_lost(
    job: ViewsJob | CardsJob, disk: SmallDisk
) -> None:
    file = job.write_file()
    running, events = application(file, job.bootstrap_servers, NEVER)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(running.run)
        try:
            eventually(
                lambda: len(events.of_kind("batch")),
                lambda count: count >= 2 or ended.done(),
                timeout_s=START_TIMEOUT_S,
            )
            disk.fill()
            job.produce(Random(2), records=1_000, seconds=120)
            with pytest.raises(RetriableError, match="a disk is full"):
                ended.result(START_TIMEOUT_S)
        finally:
            running.request_drain()
    _goes_on(job, file, disk)


def test_a_new_pipeline_on_a_full_disk_is_refused_and_starts_when_there_is_room(
    job: ViewsJob | CardsJob, disk: SmallDisk
) -> None:
    file = job.write_file()
    disk.fill()
    with pytest.raises(RetriableError, match="a disk is full") as caught:
        run_here(file, job.bootstrap_servers)
    assert "make room" in caught.value.then
    _goes_on(job, file, disk)


def _goes_on(job: ViewsJob | CardsJob, file: Path, disk: SmallDisk) -> None:
    disk.free()
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.check()


@pytest.mark.crash
def test_a_death_during_the_upload_of_a_snapshot(
    broker: RunningBroker, tmp_path: Path, stateful: type[ViewsJob | CardsJob]
) -> None:
    job = stateful(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(Random(1), records=2_000)
    file = job.write_file(batch=SMALL_BATCH)
    store = job.checkpoint / "state" / "0" / "0"
    settings = {"ONCEFLOW_SPARK__CONF": json.dumps(SNAPSHOT_OF_EACH_BATCH)}
    folder = tmp_path / "killed"
    with started(folder, file, job.bootstrap_servers, environment=settings) as service:
        eventually((store / "SSTs").is_dir, timeout_s=START_TIMEOUT_S)
        _stop_in_an_upload(_spark_of(service), store)
        os.killpg(service.process.pid, signal.SIGKILL)
        assert service.wait() == -signal.SIGKILL
    assert _unfinished(store)
    job.write_file()
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.check()


def _spark_of(service: Service) -> psutil.Process:
    (java,) = (p for p in psutil.Process(service.process.pid).children() if p.name() == "java")
    return java


def _stop_in_an_upload(spark: psutil.Process, store: Path) -> None:
    """Stop Spark's process whenever a file appears, until it is found to have been in an upload."""
    clock: Clock = SystemClock()
    deadline = clock.within(UPLOAD_TIMEOUT_S)
    known = _uploaded(store)
    while not deadline.is_over:
        found = _uploaded(store)
        if found - known:
            spark.suspend()
            eventually(spark.status, lambda status: status == psutil.STATUS_STOPPED)
            if _unfinished(store):
                return
            spark.resume()
            found = _uploaded(store)
        known = found
        clock.sleep(LOOK_INTERVAL_S)
    raise AssertionError(f"no upload was hit within {UPLOAD_TIMEOUT_S:g} s")


def _uploaded(store: Path) -> frozenset[str]:
    with suppress(FileNotFoundError):
        return frozenset(path.name for path in (store / "SSTs").iterdir())
    return frozenset()


def _unfinished(store: Path) -> set[str]:
    """Tables that no snapshot names yet, and snapshots that do not have their name yet."""
    named = set()
    for snapshot in store.glob("[0-9]*.zip"):
        with zipfile.ZipFile(snapshot) as file:
            listed = json.loads(file.read("metadata").partition(b"\n")[2])
        named |= {table["dfsSstFileName"] for table in listed["sstFiles"]}
    tables = {name for name in _uploaded(store) if name.endswith(".sst")}
    return tables - named | {path.name for path in store.glob(".*.zip.*tmp")}

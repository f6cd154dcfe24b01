"""Checkpoints on S3, on a real server: what a disk does, and what only a store of objects can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow.fs as pafs
import pytest
from py4j.protocol import Py4JJavaError

from onceflow.crashpoints import CrashPoint
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.errors import ConfigError, CorruptionError, RetriableError
from onceflow.java.choice import find_java
from onceflow.java.s3_jars import FILE_MANAGER, install
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.spark.session import SessionSettings
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import (
    QUICK,
    Events,
    engine,
    run_here,
    run_until_it_fails,
    running_here,
)
from tests.support.drivers.service import QUICK_CONF, run_to_crash, started
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger, read_topic
from tests.support.sites.object_store import BUCKET, ObjectStore, running_store
from tests.support.sites.store_proxy import StoreProxy

pytestmark = pytest.mark.long
"""The server is built by Go, which CI does not have."""

FENCED = 4
_TIMEOUTS = ("", "request.", "acquisition.")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    install(JarCache.of_user().ensure(jar_set("s3")), find_java())
    with running_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(store: ObjectStore) -> Iterator[StoreProxy]:
    with StoreProxy(store.port).running() as running:
        yield running


@pytest.fixture(scope="module")
def session(store: ObjectStore, proxy: StoreProxy) -> SessionSettings:
    conf = store.conf(endpoint=f"http://127.0.0.1:{proxy.port}")
    return replace(QUICK, conf={**QUICK.conf, **conf})


class S3Job:
    """A pipeline whose checkpoint is in the bucket."""

    def __init__(
        self, broker: RunningBroker, folder: Path, session: SessionSettings, store: ObjectStore
    ) -> None:
        self.views = ViewsJob(broker.bootstrap_servers, folder)
        self.views.location = f"s3a://{BUCKET}/some/{self.views.name}"
        self.root = f"{BUCKET}/some/{self.views.name}"
        self.servers = broker.bootstrap_servers
        self.session, self.folder = session, folder
        self.objects = store.files()
        self.views.create_input()
        self.views.produce(Random(1), records=2_000, seconds=300)
        self.file = self.views.write_file()

    @property
    def environment(self) -> dict[str, str]:
        """For a process of its own."""
        patient = {f"spark.hadoop.fs.s3a.connection.{name}timeout": "300s" for name in _TIMEOUTS}
        conf = {**self.session.conf, **patient, **QUICK_CONF}
        return {"ONCEFLOW_SPARK__CONF": json.dumps(conf)}

    def again(self) -> Events:
        return run_here(self.file, self.servers, self.session)

    def finish(self) -> None:
        self.views.close_windows()
        self.again()
        self.views.check()

    def names(self, folder: str) -> list[str]:
        """Paths of its files, in the order of their names."""
        selector = pafs.FileSelector(f"{self.root}/{folder}", recursive=True)
        return sorted(each.path for each in self.objects.get_file_info(selector) if each.is_file)

    def newest(self, log: str) -> str:
        return max(self.names(log), key=lambda path: int(path.rpartition("/")[2]))

    def newest_state(self) -> str:
        files = [path for path in self.names("state/0/0") if path.endswith(".changelog")]
        return max(files, key=lambda path: int(path.rpartition("/")[2].partition("_")[0]))

    def content(self, path: str) -> bytes:
        with self.objects.open_input_stream(path) as stream:
            return bytes(stream.readall())

    def put(self, path: str, content: bytes) -> None:
        with self.objects.open_output_stream(path) as stream:
            stream.write(content)

    def refused(self, kind: type[Exception]) -> str:
        """Start, expect a refusal, and that it wrote nothing."""
        before = self.snapshot()
        with pytest.raises(kind) as caught:
            self.again()
        assert self.snapshot() == before
        return str(caught.value)

    def snapshot(self) -> tuple[int, int]:
        return (
            len(read_topic(self.servers, self.views.output_topic)),
            len(read_ledger(self.servers, self.views.name)),
        )


@pytest.fixture
def job(
    broker: RunningBroker, tmp_path: Path, session: SessionSettings, store: ObjectStore
) -> S3Job:
    return S3Job(broker, tmp_path, session, store)


def test_an_empty_machine_goes_on_where_another_was_lost(job: S3Job, tmp_path: Path) -> None:
    """A process is killed between the two commits; all that its successor has is in the bucket."""
    environment = job.environment
    run_to_crash(
        tmp_path / "lost",
        job.file,
        job.servers,
        "after_commit:kill:3",
        environment=environment,
    )
    events = job.again()
    assert [b["is_skipped"] for b in events.of_kind("batch")][:2] == [True, False]
    assert not (tmp_path / ".onceflow").exists()
    job.finish()


def test_a_plan_that_a_driver_sent_before_it_was_taken_over_comes_too_late(
    job: S3Job, tmp_path: Path, proxy: StoreProxy
) -> None:
    """Its request waits somewhere on the way, while another driver logs that batch and the rest."""
    with (
        proxy.holding("/offsets/2") as late,
        started(tmp_path / "first", job.file, job.servers, environment=job.environment) as first,
    ):
        assert late.has_arrived.wait(120), first.errors[-3000:]
        job.views.produce(Random(2), records=500, seconds=100)
        job.again()
        plan = job.content(f"{job.root}/offsets/2")
        late.may_pass.set()
        assert first.wait() == FENCED, first.errors[-3000:]
        assert late.status == 412
    assert job.content(f"{job.root}/offsets/2") == plan
    job.finish()


def test_of_two_that_write_one_file_the_first_wins(job: S3Job) -> None:
    jvm = jvm_of(engine(job.session).open_session(job.views.location))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    path = jvm.org.apache.hadoop.fs.Path(f"{job.views.location}/offsets/7")
    settings = jvm.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration()
    settings = jvm.org.apache.hadoop.conf.Configuration(settings)
    settings.set("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
    assert loader.loadClass(FILE_MANAGER)
    kind = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager = kind.create(path, settings)
    first, second, given_up, over = (
        manager.createAtomic(path, may_replace) for may_replace in (False, False, False, True)
    )
    for stream, text in ((first, b"first"), (second, b"second"), (given_up, b"no"), (over, b"new")):
        stream.write(text)
    given_up.cancel()
    assert not manager.exists(path)
    first.close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        second.close()
    assert job.content(f"{job.root}/offsets/7") == b"first"
    over.close()
    assert job.content(f"{job.root}/offsets/7") == b"new"


def test_a_lost_plan_is_refused_as_on_a_disk(job: S3Job) -> None:
    run_until_it_fails(
        job.file, job.servers, CrashPoint.AFTER_COMMIT, arrivals=2, session=job.session
    )
    job.objects.delete_file(job.newest("offsets"))
    assert "offset log lost its newest entry" in job.refused(CorruptionError)


def test_a_state_file_that_was_cut_is_named(job: S3Job) -> None:
    job.again()
    damaged = job.newest_state()
    content = job.content(damaged)
    job.put(damaged, content[: len(content) // 2])
    job.views.close_windows()
    # As on another machine: nothing of it in memory.
    jvm = jvm_of(engine(job.session).open_session(job.views.location))
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    assert damaged.removeprefix(BUCKET) in job.refused(CorruptionError)


def test_a_store_that_goes_away_ends_the_run_and_loses_nothing(
    job: S3Job, proxy: StoreProxy
) -> None:
    with running_here(job.file, job.servers, job.session) as running:
        running.wait_for_batches(2)
        with proxy.away():
            job.views.produce(Random(2), records=500, seconds=100)
            error = running.error()
    assert isinstance(error, RetriableError)
    assert "the object store does not answer" in str(error)
    with proxy.away():
        assert "the object store does not answer" in job.refused(RetriableError)
    job.finish()


def test_a_bucket_that_is_not_there_is_refused_before_anything_is_written(job: S3Job) -> None:
    text = job.file.read_text()
    job.file.write_text(text.replace(f"s3a://{BUCKET}/", "s3a://not-there/"))
    with pytest.raises(ConfigError, match="there is no such bucket"):
        job.again()
    assert job.snapshot() == (0, 0)


@pytest.mark.parametrize("key", ["access_key", "secret_key"])
def test_wrong_keys_are_refused_before_anything_is_written(
    job: S3Job, store: ObjectStore, key: str
) -> None:
    wrong = store.conf(**{key: "not-of-this-store"})
    job.session = replace(job.session, conf={**job.session.conf, **wrong})
    # To a stranger, this store says that there is nothing.
    with pytest.raises(ConfigError, match=r"refuses these keys|these keys do not see it") as caught:
        job.again()
    assert "not-of-this-store" not in str(caught.value)
    assert job.snapshot() == (0, 0)

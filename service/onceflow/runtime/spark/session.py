"""The Spark session: settings that make batches quick, replays equal and state safe.

`docs/design.md` has the reason and the measurement of each setting.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.traceback_utils import SCCallSiteSync

from onceflow.errors import ConfigError, Fault, OnceflowError, RetriableError
from onceflow.java.choice import use_java
from onceflow.java.kafka_jars import class_path
from onceflow.java.s3_jars import FILE_MANAGER
from onceflow.pipeline.allow_list.bounds import CONF, DEFAULT_MAX_MADE
from onceflow.pipeline.allow_list.settings import JAVA_OPTIONS, PINNED
from onceflow.pipeline.query.loopback import LOOPBACK
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.home import (
    DAEMON,
    java_of_executors,
    sharing_options,
    use_spark_home,
)
from onceflow.runtime.spark.local_files import use_quick_local_files
from onceflow.runtime.spark.s3_files import REQUESTS, SCHEME, keys_of_file

TIME_ZONE = "UTC"
"""Of every query: results must not depend on where the driver runs."""

_STREAMING = "spark.sql.streaming"
_STATE = f"{_STREAMING}.stateStore"
COUNT_ROWS = f"{_STATE}.rocksdb.trackTotalNumberOfRows"
"""Whether Spark knows after each batch how many rows the state has."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTORS_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_CLASS_PATHS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
_ADDED_JARS = (*_CLASS_PATHS, "spark.jars", "spark.jars.packages")
"""Come after ours."""
LOGGING = Path(__file__).with_name("log4j2.properties")
_EXECUTION = "org.apache.spark.sql.execution.streaming"

_RESULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": TIME_ZONE,
}
"""Replays must compute the same rows."""

_FIXED: Mapping[str, str] = {
    **_RESULTS,
    "spark.speculation": "false",
    # State: changelogs instead of snapshots per batch; files of a zombie never replace ours.
    f"{_STATE}.providerClass": f"{_EXECUTION}.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.checkpointFormatVersion": "2",
    # Two look-ups for each row that comes and goes: a quarter of the cost of many keys.
    COUNT_ROWS: "false",
    # The driver's Python is the workers' Python; a unix socket saves 35 ms of delayed ACK.
    "spark.python.unix.domain.socket.enabled": "true",
    # Says nothing when Spark ends a worker that has nothing to do.
    "spark.python.daemon.module": DAEMON,
    "spark.ui.enabled": "false",
    # Kept for it even so: a thousand of each, which takes minutes of small batches to collect.
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
    # Into the plan's text, which is made for every batch.
    "spark.sql.ui.explainMode": "simple",
    # What every small batch takes of the heap; the defaults are 4 MB and, with 2 GB, 32 MB.
    "spark.broadcast.blockSize": "128k",
    "spark.buffer.pageSize": "1m",
    # A file more for each task that shuffles; it only helps to say why a block is damaged.
    "spark.shuffle.checksum.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}

_POOL = "spark.scheduler.pool"
_FAIR: Mapping[str, str] = {"spark.scheduler.mode": "FAIR"}
"""First come, first served would let one pipeline's backlog keep all cores from the others."""

_COMPILER = (
    "-XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000 "
    "-XX:Tier4CompileThreshold=1500000 -XX:Tier4BackEdgeThreshold=400000"
)
"""The JVM's own times a hundred, and for loops times ten: starting, and planning a batch, is not
worth its second compiler, which would take a third of a start's processor and keep one busy for an
hour; what runs for each record passes these within seconds of work."""
_COMPILER_OF_PROCESSORS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""The JVM's own times ten: the state of a key is asked for once a batch, whatever its records are,
and that would stay slow for minutes."""
_COLLECTOR = "-XX:G1HeapRegionSize=4m -XX:MinHeapFreeRatio=10 -XX:+AlwaysPreTouch"
"""Objects of half a region begin a collection each: with the 1 MB of a small heap, every page. And
G1 wants a share of the heap free when it ends marking, while young objects, which it lets have
more than the rest, still count: its own 40 % enlarged the heap although little of it was alive.
What the heap has, the process has from the start: garbage would fill it minute by minute."""
_NEXT_SMALLER_UNIT = {"k": "", "m": "k", "g": "m", "t": "g"}

_REFUSED: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("true", "two attempts of one task would run at once"),
    f"{_STREAMING}.asyncProgressTrackingEnabled": ("true", "batches would change on replay"),
    "asyncProgressTrackingEnabled": ("true", "batches would change on replay"),
    f"{_STREAMING}.realTimeMode.enabled": ("true", "offsets would be logged after the batch"),
    f"{_STATE}.checkpointFormatVersion": ("1", "a zombie could overwrite state files"),
    f"{_STREAMING}.forceDeleteTempCheckpointLocation": ("true", "the checkpoint must last"),
}

_MAY_BE_SET = (
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.codegen.",
    "spark.sql.debug.",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.maxPlanStringLength",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
    *PINNED,
)
"""Beginnings of settings of Spark SQL that decide how a query is computed, and not what it is."""

_FILE_MANAGER = f"{_STREAMING}.checkpointFileManagerClass"
_FILE_CHECKSUM = f"{_STREAMING}.checkpoint.fileChecksum.enabled"
_LOCAL_CHECKPOINT: Mapping[str, str] = {
    # The default manager forks two processes for each file: 190 -> 116 ms per batch.
    _FILE_MANAGER: f"{_EXECUTION}.checkpointing.FileSystemBasedCheckpointFileManager",
    # Hadoop has a checksum of every local file; Spark would add one, and Hadoop one of that.
    _FILE_CHECKSUM: "false",
}
_S3_CHECKPOINT: Mapping[str, str] = {
    # One request for each file, which the store refuses if another driver was there first.
    _FILE_MANAGER: FILE_MANAGER,
    # The store has one of every object; Spark's would be a further object, and another request.
    _FILE_CHECKSUM: "false",
}


@dataclass(frozen=True)
class SessionSettings:
    """Settings of Spark that a user may choose.

    Args:
        driver_memory: heap of the driver, e.g. `2g`; bounds the JVM in local mode.
        shuffle_partitions: of stateful operators; pinned at the first start. 0: as many as cores.
        max_result_bytes: rows of one batch that the driver will hold.
        max_made: characters, elements or rows that a function may make of one value.
        max_rows: rows that one task may make at one step of a query.
        max_batch_s: seconds that one batch may be computed.
    """

    master: str = "local[*]"
    driver_memory: str = "2g"
    shuffle_partitions: int = 0
    max_result_bytes: int = 256 * 1024 * 1024
    max_made: int = DEFAULT_MAX_MADE
    max_rows: int = 100_000_000
    max_batch_s: int = 900
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def driver_memory_bytes(self) -> int:
        """`driver_memory` as a number."""
        size, unit = self.driver_memory[:-1], self.driver_memory[-1].lower()
        return int(size) << 10 * ("kmg".index(unit) + 1)

    @property
    def is_local(self) -> bool:
        """Whether everything is computed in the driver's own JVM."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    def resolved_shuffle_partitions(self) -> int:
        """The number in force: as given, or this machine's cores."""
        return self.shuffle_partitions or len(os.sched_getaffinity(0))


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuse settings that break exactly once, or let queries reach more than their sources.

    Raises:
        ConfigError: lists each of them with the reason.
    """
    faults = []
    for name, value in conf.items():
        breaking, reason = _REFUSED.get(name, ("", ""))
        if breaking and value.lower() == breaking:
            what = f"{value} breaks exactly once: {reason}"
        elif value != PINNED.get(name, value):
            what = "this setting keeps queries to their sources, and stays as it is"
        elif value != _RESULTS.get(name, value):
            what = "results depend on this setting, so it stays as it is"
        elif name in _ADDED_JARS and "kafka-clients" in value:
            what = "Kafka's client would be there twice, and this one would never be loaded"
        elif name.startswith("spark.sql.") and not name.startswith(_MAY_BE_SET):
            what = "whether results depend on this setting has not been judged"
        else:
            continue
        faults.append(Fault(what, where=name, suggestion="Remove it."))
    if faults:
        raise ConfigError("Spark settings refused", faults=tuple(faults))


def open_session(
    name: str,
    settings: SessionSettings,
    checkpoint: str,
    java_options: str | None = None,
    *,
    has_processors: bool = False,
) -> SparkSession:
    """Start Spark, or join the session of this process.

    Without `java_options`, the driver's JVM uses the archive of classes. If it `has_processors`,
    the JVM compiles sooner.

    Raises:
        ConfigError: a setting breaks exactly once, there is no Java, a jar of Kafka's client cannot
            be used, or Spark refuses to start.
        RetriableError: Spark's JVM was ended while it started, or Spark could not reach something.
    """
    check_conf(settings.conf)
    is_local = settings.master.startswith("local")
    java = use_java()
    use_spark_home(is_local=is_local)
    builder = SparkSession.builder.appName(f"onceflow.{name}").master(settings.master)
    ours = sharing_options(java) if java_options is None else java_options
    if has_processors:
        ours = f"{_COMPILER_OF_PROCESSORS} {ours}"
    conf = spark_conf(settings, checkpoint, ours)
    if is_local and not settings.is_local:
        conf = {"spark.executorEnv.JAVA_HOME": str(java_of_executors(java)), **conf}
    for key, value in {**conf, **class_paths(class_path(java), conf)}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise jvm.start_error(error, settings.master, java.home) from error
    jvm.quiet_accumulators(session)
    for key, value in keys_of_file(settings.conf).items():
        # No public way. Sessions and executors have what the context has.
        session.sparkContext._jsc.hadoopConfiguration().set(key, value)  # noqa: SLF001
    if is_local:
        use_quick_local_files(session)
    return session


class SharedEngine:
    """One Spark of this process for several pipelines, which take turns at its cores.

    Each gets a session of its own: views, functions and settings of one are not seen by others.
    """

    def __init__(self, settings: SessionSettings, *, has_processors: bool = False) -> None:
        self._settings = replace(settings, conf={**_FAIR, **settings.conf})
        self._has_processors = has_processors
        self._first: SparkSession | None = None
        self._failure: OnceflowError | None = None
        self._lock = threading.Lock()

    def open_session(self, checkpoint: str) -> SparkSession:
        """Open a session, which need not be stopped; the first call starts Spark.

        Args:
            checkpoint: location of Spark's checkpoint.

        Raises:
            OnceflowError: as the function of the same name.
        """
        with self._lock, jvm.losses_told():
            if self._failure is not None:
                raise self._failure
            if self._first is None:
                self._first = self._started()
            session = self._first.newSession()
        wanted = _of_checkpoint(checkpoint)
        for key in _LOCAL_CHECKPOINT.keys() - self._settings.conf.keys():
            if key in wanted:
                session.conf.set(key, wanted[key])
            else:
                session.conf.unset(key)
        return session

    def jvm(self) -> Any:
        """Py4J's view of Spark's JVM; the first call starts Spark.

        Raises:
            OnceflowError: as `open_session`.
        """
        return self.open_session("").sparkContext._jvm  # noqa: SLF001  no public way

    def loss(self) -> OnceflowError | None:
        """Why this process cannot use Spark any more; None if it can, or has not started it.

        A start that failed counts, unless settings are to blame: PySpark holds on to its first JVM,
        so another attempt would talk to one that is gone.
        """
        if self._failure is not None:
            return self._failure
        # No public way. None if this process has stopped it.
        if self._first is not None and self._first.sparkContext._jsc is None:  # noqa: SLF001
            return RetriableError("Spark has ended", found="this process has stopped it")
        return jvm.loss()

    def stop(self) -> None:
        """End Spark, if it was started and lasts."""
        if self._first is not None:
            jvm.stop(self._first)

    def _started(self) -> SparkSession:
        try:
            return open_session("serve", self._settings, "", has_processors=self._has_processors)
        except ConfigError:
            raise
        except OnceflowError as error:
            self._failure = error
            raise


@contextmanager
def pooled(session: SparkSession, pool: str) -> Iterator[None]:
    """Share the cores fairly with other pools of a shared engine, for jobs started inside.

    Queries that are started inside belong to the pool for good.
    """
    context = session.sparkContext
    context.setLocalProperty(_POOL, pool)
    try:
        yield
    finally:
        with suppress(*jvm.UNREACHABLE):
            # As Spark documents it, although its annotation says str.
            context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]


def import_ahead() -> None:
    """Import what PySpark does at its first call of the JVM, for which that would wait 0.5 s.

    To know whether there is numpy, it asks its test utilities, which import pandas.
    """
    import pyspark.testing.utils  # noqa: F401, PLC0415


@contextmanager
def one_call_site(session: SparkSession) -> Iterator[None]:
    """Inside, Spark need not find out from where it is called.

    PySpark tells it around each action, unless that happens inside of another, and then takes back
    what Spark had noted for the query: it would search the stack for every RDD of the next batch.
    """
    site = SCCallSiteSync(session.sparkContext)  # type: ignore[no-untyped-call]
    site.__enter__()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        with suppress(*jvm.UNREACHABLE):
            site.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def class_paths(ours: str, conf: Mapping[str, str]) -> Mapping[str, str]:
    """The settings that put ours before what a user wants to be on Spark's class path."""
    return {key: os.pathsep.join(filter(None, [ours, conf.get(key)])) for key in _CLASS_PATHS}


def spark_conf(settings: SessionSettings, checkpoint: str, java_options: str) -> Mapping[str, str]:
    """Make the settings that Spark is started with."""
    conf = {
        **_FIXED,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.maxResultSize": str(settings.max_result_bytes),
        "spark.sql.shuffle.partitions": str(settings.resolved_shuffle_partitions()),
        **settings.conf,
        **PINNED,
        CONF: str(settings.max_made),
    }
    # The last of two equal options counts: a user's come last.
    conf[_JAVA_OPTIONS] = " ".join(
        [
            f"-Dlog4j2.configurationFile={LOGGING}",
            # Else it writes JSON, as the run itself does without a terminal.
            "-Donceflow.log=text" if sys.stderr.isatty() else "",
            _COMPILER,
            _COLLECTOR,
            least_heap(conf["spark.driver.memory"]),
            java_options,
            settings.conf.get(_JAVA_OPTIONS, ""),
            JAVA_OPTIONS,
        ]
    )
    of_executors = settings.conf.get(_EXECUTORS_JAVA_OPTIONS, "")
    conf[_EXECUTORS_JAVA_OPTIONS] = f"{of_executors} {JAVA_OPTIONS}".strip()
    if settings.master.startswith("local"):
        conf |= LOOPBACK
        # Spark draws a secret, and refuses a file. The settings of an installation on Kubernetes
        # name one, and an order such as a new generation runs there without executors.
        conf.pop("spark.authenticate.secret.file", None)
        if settings.is_local:
            # A task that runs out of memory would end the JVM, and with it all pipelines.
            conf["spark.executor.killOnFatalError.depth"] = "0"
        else:
            # Its executors are processes of their own, for which Spark draws none.
            conf.setdefault("spark.authenticate.secret", secrets.token_hex(32))
    return {**REQUESTS, **_of_checkpoint(checkpoint), **conf}


def _of_checkpoint(location: str) -> Mapping[str, str]:
    """Settings that depend on where it lies."""
    if location.startswith(SCHEME):
        return _S3_CHECKPOINT
    return {} if "://" in location else _LOCAL_CHECKPOINT


def least_heap(most: str) -> str:
    """The option that gives the heap a quarter of its bound at the start."""
    amount = re.fullmatch(r"(\d+)([kmgt])b?", most.lower())
    # 1,024 of the next smaller unit make one.
    return f"-Xms{int(amount[1]) * 256}{_NEXT_SMALLER_UNIT[amount[2]]}" if amount else ""

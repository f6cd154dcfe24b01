"""Executors that are killed while their tasks write a batch, on a Spark cluster of two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import psutil
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.protocol.order import ARRIVAL
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.records.rows import KEY_COLUMN, PARTITION_COLUMN, VALUE_COLUMN
from onceflow.runtime.records.writing import Numbering, batch_rows
from onceflow.runtime.spark.session import SessionSettings
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from tests.chaos import ChaosProxy, Rule
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import end_engine, engine
from tests.support.drivers.service import QUICK_CONF, QUICK_JVM
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic
from tests.support.processes import command_of

pytestmark = pytest.mark.crash

TWO_EXECUTORS = SessionSettings(
    master="local-cluster[2,1,1024]",
    driver_memory="1g",
    conf={**QUICK_CONF, "spark.executor.extraJavaOptions": QUICK_JVM},
)
EXECUTOR = "CoarseGrainedExecutorBackend"
START_TIMEOUT_S = 90.0
PARTITIONS = 3
ROWS = 30_000
TASKS = 6
ATTEMPTS = 5
"""As many lanes as a batch is tried on."""
HEAD = [OutputRecord(0, b"head", b"{}")]


def executors() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [each for each in children if EXECUTOR in command_of(each)]


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    yield engine(TWO_EXECUTORS).open_session("")
    end_engine()


def begun(broker: RunningBroker, out: str, stack: ExitStack) -> KafkaIncarnation:
    """The one lane, initialised and in a transaction."""
    lane = KafkaIncarnation(out, Connection(broker.bootstrap_servers, {}), is_shared=True)
    stack.callback(lane.discard)
    lane.initialise(SystemClock().within(60))
    lane.begin()
    return lane


@pytest.mark.timeout(600)
def test_a_batch_whose_writers_are_killed(
    broker: RunningBroker, spark: SparkSession, topic: Callable[[str], str], random: Random
) -> None:
    """No task is repeated in their transaction; on another lane, each record comes once."""
    out = topic("o")
    create_topic(broker.bootstrap_servers, out, PARTITIONS)
    create_topic(broker.bootstrap_servers, f"{out}-heads", 1)
    packer = HeaderPacker(pipeline_tag=1, generation=1, plan_tag=1, batch_id=0)
    numbering = Numbering(out, [1] * PARTITIONS, packer, SystemClock().unix_ms())
    frame = spark.range(0, ROWS, 1, TASKS).select(
        (F.col("id") % PARTITIONS).cast("int").alias(PARTITION_COLUMN),
        F.lit(b"k").alias(KEY_COLUMN),
        F.repeat(F.col("id").cast("string"), 20).cast("binary").alias(VALUE_COLUMN),
    )
    with ExitStack() as stack:
        proxy = stack.enter_context(ChaosProxy(broker.bootstrap_servers))
        through = {"bootstrap.servers": proxy.bootstrap_servers, "retry.backoff.ms": "10"}
        pool = stack.enter_context(ThreadPoolExecutor(1))
        batch = stack.enter_context(batch_rows(frame, ARRIVAL, 2))

        eventually(lambda: len(executors()) == 2, timeout_s=START_TIMEOUT_S)
        expected = batch.compare(numbering)
        lane = begun(broker, out, stack)
        held = proxy.add(
            Rule(api="Produce", on="request", action="hold", times=1, transactional_id=out)
        )
        writing = pool.submit(batch.write, numbering, lane.transaction(), through)
        held.wait_fired(1, timeout_s=START_TIMEOUT_S)
        for process in random.sample(executors(), random.choice((1, 2))):
            process.kill()
        held.release()
        with pytest.raises(Py4JJavaError, match=r"not repeated|RefusedException"):
            writing.result(START_TIMEOUT_S)
        lane.abort(SystemClock().within(5))

        for _ in range(ATTEMPTS):
            lane = begun(broker, out, stack)
            try:
                reports = batch.write(numbering, lane.transaction(), through)
                break
            except Py4JJavaError:  # What was shuffled is lost, and made again.
                lane.abort(SystemClock().within(5))
        lane.send(f"{out}-heads", HEAD, SystemClock().within(30))
        lane.commit(SystemClock().within(30))
    assert reports == expected
    assert sum(each.count for each in reports.values()) == ROWS
    found = read_topic(broker.bootstrap_servers, out)
    assert [w.sequence for w in found] == [*range(1, ROWS // PARTITIONS + 1)] * PARTITIONS
    ids = [int((w.value or b"")[: len(w.value or b"") // 20]) for w in found]
    assert ids == [n for p in range(PARTITIONS) for n in range(p, ROWS, PARTITIONS)]

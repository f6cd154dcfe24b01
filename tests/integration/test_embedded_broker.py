"""The embedded brokers are real ones, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from onceflow.clock import SystemClock
from onceflow.devkit import dev_broker
from onceflow.devkit.broker import EmbeddedCluster
from onceflow.devkit.broker_start import ClusterOptions, ClusterPlan, answers, start_cluster
from onceflow.devkit.paths import CACHE_VARIABLE, cache_dir
from onceflow.devkit.processes import AttachedProcesses
from onceflow.devkit.supervisor import Spec
from onceflow.errors import ConfigError
from tests.support.brokers import RunningBroker
from tests.support.eventually import eventually
from tests.support.topics import create_topic

pytestmark = pytest.mark.crash

TIMEOUT_S = 30
UNTIL_KILLED = """
import signal
from onceflow.devkit.broker import EmbeddedCluster
with EmbeddedCluster() as cluster:
    broker = cluster.brokers[0]
    print(broker.address, broker.log.parent.parent, flush=True)
    signal.pause()
"""


def write(bootstrap_servers: str, topic: str, value: bytes) -> Producer:
    """Write one record in a transaction that is left open."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.flush(TIMEOUT_S)
    return producer


def committed_values(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values = []
    while (record := consumer.poll(TIMEOUT_S)) is not None and record.error() is None:
        values.append(record.value())
    consumer.close()
    assert record is not None, "no end of partition was reported"
    return values


def attached(plan: ClusterPlan) -> AttachedProcesses:
    spec = Spec(commands=plan.commands, logs=plan.logs, remove=str(plan.folder))
    return AttachedProcesses(spec, plan.supervisor_log)


def test_the_broker_hides_aborted_records_and_shows_committed_ones(
    broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    """The one property that no imitation of Kafka has."""
    name = topic("records")
    create_topic(broker.bootstrap_servers, name)

    write(broker.bootstrap_servers, name, b"aborted").abort_transaction(TIMEOUT_S)
    write(broker.bootstrap_servers, name, b"committed").commit_transaction(TIMEOUT_S)

    assert committed_values(broker.bootstrap_servers, name) == [b"committed"]


def test_nothing_is_left_after_a_cluster_is_closed() -> None:
    with EmbeddedCluster() as cluster:
        broker = cluster.brokers[0]
        assert broker.log.exists()

    assert not answers(broker.address, 1)
    assert not broker.log.parent.parent.exists()


def test_nothing_is_left_after_the_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UNTIL_KILLED], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        address, folder = parent.stdout.readline().split()
        assert answers(address, 1)
        parent.kill()

    eventually(lambda: not Path(folder).exists())
    assert not answers(address, 1)


def test_no_broker_is_left_after_the_supervisor_is_killed(tmp_path: Path) -> None:
    plan, processes = start_cluster(tmp_path, ClusterOptions(), attached, SystemClock())

    os.kill(processes.pid, signal.SIGKILL)

    eventually(lambda: not answers(plan.bootstrap_servers, 1))
    processes.close()


def test_a_port_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    plans: list[ClusterPlan] = []
    with socket.socket() as somebody:

        def supervise(plan: ClusterPlan) -> AttachedProcesses:
            if not plans:
                somebody.bind(("127.0.0.1", plan.nodes[0].port))
                somebody.listen()
            plans.append(plan)
            return attached(plan)

        plan, processes = start_cluster(
            tmp_path / "cluster", ClusterOptions(), supervise, SystemClock()
        )
        processes.close()

    assert len(plans) == 2
    assert plan.nodes[0].port != plans[0].nodes[0].port


def test_a_broker_that_cannot_start_says_why() -> None:
    options = ClusterOptions(settings={"num.io.threads": "none"})

    with pytest.raises(ConfigError, match=r"num\.io\.threads"):
        EmbeddedCluster(options).start()


def test_a_killed_broker_comes_back_with_what_was_acknowledged(
    three_brokers: EmbeddedCluster, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(three_brokers.bootstrap_servers, name)
    write(three_brokers.bootstrap_servers, name, b"kept").commit_transaction(TIMEOUT_S)
    victim = three_brokers.brokers[0]

    victim.kill()
    assert not victim.is_running
    assert committed_values(three_brokers.bootstrap_servers, name) == [b"kept"]

    victim.restart()
    three_brokers.wait_until_ready()
    assert victim.is_running


def test_a_frozen_broker_answers_again_once_thawed() -> None:
    with EmbeddedCluster() as cluster:
        broker = cluster.brokers[0]

        broker.freeze()
        assert not answers(broker.address, 1)
        assert broker.is_running

        broker.thaw()
        eventually(lambda: answers(broker.address, 1))


@pytest.fixture
def dev_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test's own, with the jars of the real one."""
    jars = cache_dir() / "jars"
    (tmp_path / "jars").symlink_to(jars)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))


@pytest.mark.usefixtures("dev_cache")
def test_the_development_broker_stays_until_it_is_stopped_and_keeps_its_data() -> None:
    clock = SystemClock()
    assert dev_broker.running() is None
    try:
        first = dev_broker.start_detached(1, clock)
        assert dev_broker.running() == first
        with pytest.raises(ConfigError, match="already running"):
            dev_broker.start_detached(1, clock)
        create_topic(first.bootstrap_servers, "kept")
        write(first.bootstrap_servers, "kept", b"data").commit_transaction(TIMEOUT_S)

        assert dev_broker.stop_detached(clock) == first
        assert dev_broker.running() is None
        assert not answers(first.bootstrap_servers, 1)

        second = dev_broker.start_detached(1, clock)
        assert committed_values(second.bootstrap_servers, "kept") == [b"data"]
    finally:
        dev_broker.stop_detached(clock)
    dev_broker.remove_data()
    assert not dev_broker.dev_folder().exists()

"""The embedded brokers are real ones, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from onceflow.clock import SystemClock
from onceflow.devkit import broker_start, dev_broker
from onceflow.devkit.broker_start import answers, free_ports
from onceflow.devkit.paths import CACHE_VARIABLE, cache_dir
from onceflow.errors import ConfigError
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic

pytestmark = pytest.mark.crash

TIMEOUT_S = 30
UNTIL_KILLED = """
import signal
from tests.support.brokers.children import ChildProcessCluster
with ChildProcessCluster() as cluster:
    broker = cluster.brokers[0]
    print(broker.address, broker.log.parent.parent, flush=True)
    signal.pause()
"""
TEMPORARY_UNTIL_KILLED = """
import signal, tempfile
from onceflow.clock import SystemClock
from onceflow.devkit.dev_broker import temporary_broker
tempfile.tempdir = {folder!r}
with temporary_broker(SystemClock()) as address:
    print(address, tempfile.tempdir, flush=True)
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
    return [record.value for record in read_topic(bootstrap_servers, topic)]


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
    with ChildProcessCluster() as cluster:
        broker = cluster.brokers[0]
        assert broker.log.exists()

    assert not answers(broker.address, 1)
    assert not broker.log.parent.parent.exists()


def test_nothing_is_left_after_the_parent_is_killed() -> None:
    address, folder = killed(UNTIL_KILLED)

    eventually(lambda: not folder.exists())
    assert not answers(address, 1)


def test_nothing_is_left_of_a_temporary_broker_after_the_parent_is_killed(tmp_path: Path) -> None:
    address, folder = killed(TEMPORARY_UNTIL_KILLED.format(folder=str(tmp_path)))

    eventually(lambda: not any(folder.iterdir()))
    assert not answers(address, 1)


def test_nothing_is_left_of_a_temporary_broker_after_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with dev_broker.temporary_broker(SystemClock()) as address:
        assert answers(address, 1)
        assert any(tmp_path.iterdir())

    assert not answers(address, 1)
    eventually(lambda: not any(tmp_path.iterdir()))


def killed(script: str) -> tuple[str, Path]:
    """Kill a process when its broker answers; returns the broker's address and its folder."""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        try:
            address, folder = parent.stdout.readline().split()
            eventually(lambda: answers(address, 1))
        finally:
            parent.kill()
    return address, Path(folder)


def test_no_broker_is_left_after_the_supervisor_is_killed() -> None:
    with ChildProcessCluster() as cluster:
        os.kill(cluster.supervisor_pid, signal.SIGKILL)

        eventually(lambda: not answers(cluster.bootstrap_servers, 1))


@pytest.mark.parametrize(
    "start",
    [ChildProcessCluster, lambda: dev_broker.temporary_broker(SystemClock())],
    ids=["of tests", "temporary"],
)
def test_a_port_that_is_taken_is_left_to_its_owner(
    start: Callable[[], AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    with socket.socket() as somebody, ExitStack() as patches:

        def taken_once(count: int) -> list[int]:
            found = free_ports(count)
            if not asked:
                somebody.bind(("127.0.0.1", found[0]))
                somebody.listen()
            asked.append(found)
            return found

        monkeypatch.setattr(broker_start, "free_ports", taken_once)
        patches.enter_context(start())

    assert len(asked) == 2


def test_a_broker_that_cannot_start_says_why() -> None:
    options = ClusterOptions(settings={"num.io.threads": "none"})

    with pytest.raises(ConfigError, match=r"num\.io\.threads"), ChildProcessCluster(options):
        pass


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

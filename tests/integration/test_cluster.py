"""Faults of three brokers really happen, and the answers about the brokers are true."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError, KafkaConnectionError

from onceflow.clock import SystemClock
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.cluster import (
    TRANSACTION_STATE,
    FaultyBroker,
    FaultyCluster,
    controller_of,
    coordinator_of,
    group_coordinator_of,
    leader_of,
    move_leader,
    partition_of_transactional_id,
)
from tests.support.brokers.small_disk import SmallDisk, small_disk
from tests.support.brokers.view import complaints, views
from tests.support.brokers.wrong_clock import ClockOffset, faketime_environment
from tests.support.eventually import eventually
from tests.support.outside.topics import administration, create_topic, ordered_producer

pytestmark = pytest.mark.long

TIMEOUT_S = 60
RECORDS = 100
OFF_S = 3_600
NEAR_S = 60
"""Two clocks that are right differ by less, also where the machine is busy."""
NEGATIVE = "whose-coordinator-1"
"""Its hash in Java is below zero and odd: then the partition shows how the sign is taken off."""
PRINT_CLOCKS = "import time; print(time.time(), time.monotonic())"


def write(cluster: FaultyCluster, topic: str, count: int = RECORDS) -> None:
    """Returns when every record is acknowledged by all replicas in sync, each once, in order."""
    errors: list[object] = []
    producer = ordered_producer(cluster.bootstrap_servers)
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    # By identity: comparing a KafkaError with None leaves an exception pending in C.
    assert len(errors) == count
    assert all(error is None for error in errors)


def read(cluster: FaultyCluster, topic: str) -> Sequence[Message]:
    """All records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while (record := consumer.poll(TIMEOUT_S)) is not None and record.error() is None:
        records.append(record)
    consumer.close()
    assert record is not None, "no end of the partition was reported"
    return records


def expect(cluster: FaultyCluster, topic: str, values: Sequence[int]) -> None:
    """Wait: a new leader hides what it has until it knows that another replica has it, too."""

    def found() -> Sequence[int]:
        return [int(record.value() or b"-1") for record in read(cluster, topic)]

    eventually(found, lambda seen: seen == values, timeout_s=TIMEOUT_S)


def addresses(cluster: FaultyCluster) -> dict[int, str]:
    return {broker.node_id: broker.address for broker in cluster.brokers}


def answering(cluster: FaultyCluster) -> set[int]:
    return set(views(addresses(cluster)))


def described_coordinator(cluster: FaultyCluster, transactional_id: str) -> int | None:
    """None while it loads what it has to know."""
    with suppress(CoordinatorLoadInProgressError), by_kafka_python(cluster) as admin:
        return int(admin.describe_transactions([transactional_id])[transactional_id].coordinator_id)
    return None


def described_group_coordinator(cluster: FaultyCluster, group: str) -> int | None:
    """None while it loads what it has to know."""
    with suppress(KafkaException), administration(cluster.bootstrap_servers) as admin:
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return int(described.coordinator.id)
    return None


def described_controller(cluster: FaultyCluster) -> int | None:
    """None if the client asks a broker that is down: it picks any."""
    with suppress(KafkaConnectionError), by_kafka_python(cluster) as admin:
        quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
        return int(quorum["leader_id"])
    return None


def by_kafka_python(cluster: FaultyCluster) -> AbstractContextManager[KafkaAdminClient]:
    alive = [broker.address for broker in cluster.brokers if broker.is_running]
    return closing(KafkaAdminClient(bootstrap_servers=alive))


def test_what_was_acknowledged_outlives_the_kill_of_its_leader(
    cluster: FaultyCluster, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(cluster.bootstrap_servers, name)
    write(cluster, name)
    victim = leader_of(cluster, name, 0)
    known = addresses(cluster)

    victim.kill()

    assert not victim.is_running
    assert answering(cluster) == known.keys() - {victim.node_id}
    assert leader_of(cluster, name, 0).node_id != victim.node_id
    expect(cluster, name, [*range(RECORDS)])
    write(cluster, name)

    cluster.heal()

    assert victim.is_running
    assert addresses(cluster) == known
    assert complaints(known) == []
    move_leader(cluster, name, 0, to=victim)
    expect(cluster, name, [*range(RECORDS)] * 2)


def test_a_frozen_leader_is_replaced_and_answers_again_once_thawed(
    cluster: FaultyCluster, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(cluster.bootstrap_servers, name)
    victim = leader_of(cluster, name, 0)

    victim.freeze()

    assert victim.is_running
    assert victim.node_id not in answering(cluster)
    assert leader_of(cluster, name, 0).node_id != victim.node_id

    victim.thaw()

    eventually(lambda: victim.node_id in answering(cluster))


def test_a_stopped_leader_hands_over_before_it_ends(
    cluster: FaultyCluster, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(cluster.bootstrap_servers, name)
    victim = leader_of(cluster, name, 0)

    victim.stop()

    assert not victim.is_running
    seen = views(addresses(cluster))
    assert seen.keys() == addresses(cluster).keys() - {victim.node_id}
    assert all(view.partitions[name, 0].leader in seen for view in seen.values())


def test_two_brokers_that_are_down_are_healed_together(cluster: FaultyCluster) -> None:
    cluster.brokers[0].kill()
    cluster.brokers[1].freeze()

    cluster.heal()

    assert complaints(addresses(cluster)) == []
    assert all(broker.is_running for broker in cluster.brokers)


def test_coordinators_are_those_that_clients_find_also_after_a_move(cluster: FaultyCluster) -> None:
    name = NEGATIVE
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 2}
    )
    producer.init_transactions(TIMEOUT_S)
    partition = partition_of_transactional_id(cluster, name)

    for target in cluster.brokers:
        move_leader(cluster, TRANSACTION_STATE, partition, to=target)

        assert coordinator_of(cluster, name).node_id == target.node_id
        assert eventually(lambda: described_coordinator(cluster, name)) == target.node_id

    for unused in (f"{name}-{number}" for number in range(20)):
        partition = partition_of_transactional_id(cluster, unused)
        leader = leader_of(cluster, TRANSACTION_STATE, partition)
        assert coordinator_of(cluster, unused).node_id == leader.node_id

    group_coordinator = group_coordinator_of(cluster, name)
    found = eventually(lambda: described_group_coordinator(cluster, name))
    assert found == group_coordinator.node_id


def test_a_killed_controller_is_replaced(cluster: FaultyCluster) -> None:
    victim = controller_of(cluster)

    victim.kill()

    successor = controller_of(cluster)
    assert successor.node_id != victim.node_id
    assert eventually(lambda: described_controller(cluster)) == successor.node_id


@dataclass(frozen=True)
class Ailing:
    """A cluster of child processes whose parts can be made ill."""

    cluster: FaultyCluster
    disk: SmallDisk
    with_disk: FaultyBroker
    clock: ClockOffset
    with_clock: FaultyBroker


@pytest.fixture(scope="module")
def ailing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ailing]:
    folder = tmp_path_factory.mktemp("ailing")
    with ExitStack() as stack:
        clock = ClockOffset(folder / "clock")
        disk = stack.enter_context(small_disk(folder / "disk"))
        options = ClusterOptions(
            brokers=3,
            node_settings={2: {"log.dirs": str(disk.folder / "data")}},
            node_environment={3: clock.environment},
        )
        cluster = stack.enter_context(ChildProcessCluster(options))
        _, with_disk, with_clock = cluster.brokers
        yield Ailing(cluster, disk, with_disk, clock, with_clock)


def test_a_clock_can_be_wrong_and_set_right_while_a_broker_runs(
    ailing: Ailing, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    times = {"message.timestamp.type": "LogAppendTime"}
    create_topic(ailing.cluster.bootstrap_servers, name, config=times)
    move_leader(ailing.cluster, name, 0, to=ailing.with_clock)

    def seconds_off() -> float:
        write(ailing.cluster, name, 1)
        _, stamped_ms = read(ailing.cluster, name)[-1].timestamp()
        return (stamped_ms - SystemClock().unix_ms()) / 1_000

    ailing.clock.set(OFF_S)
    eventually(seconds_off, lambda off: off > NEAR_S)
    assert seconds_off() == pytest.approx(OFF_S, abs=NEAR_S)
    ailing.clock.set(0)
    eventually(seconds_off, lambda off: off < NEAR_S)
    assert seconds_off() == pytest.approx(0, abs=NEAR_S)

    # Its time-outs would be an hour late from now on.
    ailing.with_clock.kill()
    ailing.cluster.heal()


def test_a_full_disk_takes_its_broker_down_and_the_others_go_on(
    ailing: Ailing, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(ailing.cluster.bootstrap_servers, name)
    writes: list[int] = []

    def is_down_after_another_write() -> bool:
        write(ailing.cluster, name)
        writes.append(RECORDS)
        return not ailing.with_disk.is_running

    ailing.disk.fill()
    eventually(is_down_after_another_write)

    known = addresses(ailing.cluster)
    left = known.keys() - {ailing.with_disk.node_id}
    eventually(lambda: views(known).keys() == left)
    expect(ailing.cluster, name, [*range(RECORDS)] * len(writes))

    ailing.disk.free()
    ailing.cluster.heal()
    move_leader(ailing.cluster, name, 0, to=ailing.with_disk)
    expect(ailing.cluster, name, [*range(RECORDS)] * len(writes))


def test_the_clock_of_a_process_is_off_and_its_monotonic_clock_is_not(tmp_path: Path) -> None:
    clock = ClockOffset(tmp_path / "clock", OFF_S)
    for environment, off_s in (
        (clock.environment, OFF_S),
        (faketime_environment(-OFF_S), -OFF_S),
        ({}, 0),
    ):
        printed = subprocess.run(
            [sys.executable, "-c", PRINT_CLOCKS],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        wall_s, monotonic_s = map(float, printed.stdout.split())
        assert wall_s - SystemClock().unix_ms() / 1_000 == pytest.approx(off_s, abs=NEAR_S)
        assert monotonic_s == pytest.approx(SystemClock().monotonic_s(), abs=NEAR_S)

"""A delivery to another Kafka from end to end: `onceflow run` between two real clusters.

The target's topic equals the source's to the record, per partition and in order, as a committed
reader sees both, whatever is killed, frozen, cut or down on the way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow_connectors.consumer import Consumer
from tests.support.brokers.choice import RunningBroker, choose_broker
from tests.support.brokers.cluster import FaultyCluster
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import (
    PARTITIONS,
    RUN_TIMEOUT_S,
    DeliveryProcess,
    any_arrival,
)
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import create_topic

RECORDS = 300
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: {name}
from: {{topics: [{topic}], takeover_after: 3 seconds}}
to:
  kafka: {{bootstrap_servers: "{address}", create: true}}
batch: {{max_records: 40, max_delay: 50 ms}}
retry: {{delay: 50 ms, max_delay: 500 ms}}
"""
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


@pytest.fixture(scope="module")
def other() -> Iterator[FaultyCluster]:
    """The target's brokers."""
    with choose_broker().cluster(1) as cluster:
        yield cluster


@dataclass
class Copy(DeliveryProcess):
    """A topic, and its copy in another cluster."""

    address: str = ""

    def set_up(self, text: str = FILE) -> None:
        self.kafka.create_topic(self.topic, PARTITIONS)
        given = {"name": self.name, "topic": self.topic, "address": self.address}
        self.file.write_text(text.format(**given))

    def expected(self) -> list[tuple[object, ...]]:
        """Each record of the source as often as a reader that discards repeats sees it."""
        seen: set[tuple[int, bytes | None]] = set()
        found = []
        for record in read_topic(self.kafka.bootstrap_servers, self.topic):
            if (record.partition, record.header) not in seen:
                seen.add((record.partition, record.header))
                found.append(_content(record))
        return found

    def found(self) -> list[tuple[object, ...]]:
        return [_content(record) for record in read_topic(self.address, self.topic)]

    def assert_equal(self) -> None:
        assert self.found() == self.expected()


def _content(record: Written) -> tuple[object, ...]:
    return record.partition, record.key, record.value, record.headers, record.timestamp_ms


@pytest.fixture
def copy(
    broker: RunningBroker, other: FaultyCluster, topic: Callable[[str], str], tmp_path: Path
) -> Copy:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    return Copy(kafka, tmp_path, topic("views"), address=other.bootstrap_servers)


def test_the_copy_equals_the_topic_and_repeats_are_not_written(copy: Copy) -> None:
    copy.set_up()
    copy.write_much(RECORDS)
    copy.deliver()
    copy.assert_equal()
    first, *batches = copy.events()
    assert first["guarantee"] == "exactly once from topic to topic, for read_committed readers"
    assert sum(each.get("records", 0) for each in batches) == PARTITIONS * RECORDS
    copy.write(RECORDS - 40, RECORDS + 50)
    copy.deliver()
    copy.assert_equal()
    assert len(copy.found()) == PARTITIONS * RECORDS + 50
    with Consumer(copy.address, group="reader", topics=[copy.topic]) as reader:
        values = {reader.poll(30.0) for _ in range(PARTITIONS * RECORDS + 50)}
    assert len(values) == PARTITIONS * RECORDS + 50


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_and_repeats_no_record(
    copy: Copy, point: CrashPoint, random: Random
) -> None:
    copy.set_up()
    copy.write_much(RECORDS)
    copy.die(point, any_arrival(point, random))
    copy.write(RECORDS + 1, RECORDS + 50)
    copy.deliver()
    copy.assert_equal()


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.BEFORE_BEGIN,
        CrashPoint.MID_PRODUCE,
        CrashPoint.AFTER_EFFECT,
        CrashPoint.BEFORE_COMMIT,
    ],
    ids=lambda point: point.value,
)
def test_a_frozen_instance_that_wakes_up_late_writes_nothing_twice(
    copy: Copy, point: CrashPoint, random: Random
) -> None:
    copy.set_up()
    copy.write_much(RECORDS)
    # The first transactions are those of the claims.
    first = 1 + PARTITIONS if point is CrashPoint.BEFORE_COMMIT else 1
    with copy.frozen(point, first + random.randrange(6)):
        copy.deliver()
        copy.assert_equal()
    assert copy.events("frozen")[-1]["event"] == "caught_up"
    copy.assert_equal()


@pytest.mark.crash
def test_two_instances_share_the_partitions_and_one_goes_on_alone(copy: Copy) -> None:
    copy.set_up()
    create_topic(copy.address, copy.topic, PARTITIONS)
    with copy.running(name="one") as one, copy.running(name="two") as two:
        written = count()
        last = copy.write_until_all_deliver(
            "one", "two", settle=lambda: wait_for(copy, PARTITIONS * 100 * (next(written) + 1))
        )
        one.kill()
        before = copy.delivered("two")
        for partition in range(PARTITIONS):
            copy.write(last + 1, last + 100, partition)
        wait_for(copy, PARTITIONS * (last + 100))
        assert copy.delivered("two") - before == PARTITIONS * 100
        two.send_signal(signal.SIGTERM)
        assert two.wait(RUN_TIMEOUT_S) == 0
        assert copy.events("two")[-1]["event"] == "drained"
    copy.assert_equal()


def wait_for(copy: Copy, count: int) -> Sequence[object]:
    return eventually(copy.found, lambda found: len(found) >= count, timeout_s=RUN_TIMEOUT_S)


@pytest.mark.crash
def test_brokers_that_are_down_for_a_while_delay_and_lose_nothing(copy: Copy) -> None:
    with choose_broker().cluster(1) as cluster:
        copy.address = cluster.bootstrap_servers
        copy.set_up()
        create_topic(copy.address, copy.topic, PARTITIONS)
        copy.write(1, RECORDS)
        with copy.running() as process:
            wait_for(copy, RECORDS)
            cluster.brokers[0].kill()
            copy.write(RECORDS + 1, 2 * RECORDS)
            eventually(lambda: len(copy.waits) >= 2, timeout_s=RUN_TIMEOUT_S)
            cluster.brokers[0].restart()
            cluster.wait_until_ready()
            wait_for(copy, 2 * RECORDS)
            process.send_signal(signal.SIGTERM)
            assert process.wait(RUN_TIMEOUT_S) == 0
        assert "resumed" in [each["event"] for each in copy.events()]
        copy.assert_equal()


def test_a_target_that_is_the_source_is_refused(copy: Copy) -> None:
    copy.address = copy.kafka.bootstrap_servers
    copy.set_up()
    assert copy.run() == 2
    assert "cannot write to the topic that it reads" in copy.errors

"""The Kafka ledger beyond the contract: its topic, long tails, compaction, elections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from onceflow.contracts.connector import TopicSpec
from onceflow.errors import ConfigError, CorruptionError
from onceflow.protocol.identity import DRIVER_SLOT, head_partition, ledger_topic
from onceflow_connectors.kafka.sink.ledger import FIRST_REACH, HISTORY_MS
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import LEDGER_PARTITIONS, Scene, head, head_record
from tests.support.eventually import eventually
from tests.support.outside.topics import find_topic

COMPACTING = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


def test_the_topic_is_compacted_and_keeps_a_week(scene: Scene, sink: RealSink) -> None:
    found = sink.broker.topic(scene.ledger_topic, scene.within())
    assert found is not None
    assert found.partitions == LEDGER_PARTITIONS
    assert found.config["cleanup.policy"] == "compact"
    assert found.config["min.compaction.lag.ms"] == str(HISTORY_MS)


def test_every_fault_of_an_existing_topic_is_told_at_once(scene: Scene, sink: RealSink) -> None:
    spec = TopicSpec(ledger_topic(scene.pipeline), 1, config={"cleanup.policy": "delete"})
    sink.broker.create_topic(spec, scene.within())
    with pytest.raises(ConfigError) as raised:
        scene.ledger.create(LEDGER_PARTITIONS, scene.within())
    assert "1 partitions" in str(raised.value)
    assert "cleanup.policy is delete" in str(raised.value)


def test_an_unreadable_head_is_corruption(scene: Scene) -> None:
    scene.commit(scene.ledger_topic, replace(head_record(0), value=b"{}"))
    with pytest.raises(CorruptionError, match="head"):
        scene.head()


@pytest.mark.parametrize("committed", [0, 1, FIRST_REACH, 10 * FIRST_REACH])
def test_the_newest_head_is_found_below_an_aborted_tail_of_any_length(
    scene: Scene, committed: int
) -> None:
    for batch_id in range(committed and 2):
        scene.commit(scene.ledger_topic, *[head_record(batch_id)] * (committed // 2 or 1))
    for _ in range(10):
        scene.abort(scene.ledger_topic, *[head_record(99)] * 10_000)
    scene.initialise(scene.lane)
    assert scene.head() == (head(1) if committed else None)


def test_a_compacted_history_ends_in_the_newest_head(scene: Scene, sink: RealSink) -> None:
    spec = TopicSpec(ledger_topic(scene.pipeline), LEDGER_PARTITIONS, config=COMPACTING)
    sink.broker.create_topic(spec, scene.within())
    for batch_id in range(20):
        scene.commit(scene.ledger_topic, head_record(batch_id))

    def history() -> list[int]:
        entries = scene.ledger.history(DRIVER_SLOT, scene.within())
        return [entry.batch.batch_id for entry in entries]

    # Compaction leaves the newest segment alone: something must be written for it to go on.
    def compacted() -> list[int]:
        scene.abort(scene.ledger_topic, head_record(99))
        return history()

    left = eventually(compacted, lambda found: len(found) < 20, timeout_s=60.0)
    assert left[-1] == 19
    assert scene.head() == head(19)


@pytest.fixture
def three_brokers() -> Iterator[ChildProcessCluster]:
    """Three to which a record is safe as soon as one has it, unless its topic says otherwise."""
    careless = {"min.insync.replicas": "1"}
    with ChildProcessCluster(ClusterOptions(brokers=3, settings=careless)) as cluster:
        yield cluster


@pytest.mark.crash
def test_the_ledger_outlives_the_leader_of_its_partition(
    three_brokers: ChildProcessCluster,
) -> None:
    sink = RealSink(three_brokers.bootstrap_servers)
    scene = Scene(sink)
    scene.commit(scene.ledger_topic, head_record(0))
    assert scene.head() == head(0)
    info = sink.broker.topic(scene.ledger_topic, scene.within())
    assert info is not None
    assert info.replication == 3
    assert info.config["min.insync.replicas"] == "2"
    leader = leader_of(sink, scene.ledger_topic, head_partition(DRIVER_SLOT))
    next(each for each in three_brokers.brokers if each.node_id == leader).kill()
    assert scene.ledger.read_head(DRIVER_SLOT, scene.within(60.0)) == head(0)
    incarnation = sink.incarnation(scene.lane)
    incarnation.initialise(scene.within(60.0))
    incarnation.begin()
    incarnation.send(scene.ledger_topic, [head_record(1)], scene.within(60.0))
    incarnation.commit(scene.within(60.0))
    incarnation.discard()
    assert scene.ledger.read_head(DRIVER_SLOT, scene.within(60.0)) == head(1)
    scene.close()
    sink.broker.close()


def leader_of(sink: RealSink, topic: str, partition: int) -> int:
    found = find_topic(sink.connection.bootstrap_servers, topic)
    assert found is not None
    return int(found.partitions[partition].leader)

"""The proxy before real brokers, with the clients that people use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tests.chaos import ChaosProxy, Rule
from tests.support.brokers.children import ChildProcessCluster
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.outside.topics import administration, create_topic

TIMEOUT_S = 30
SHORT_S = 2
"""For calls whose answer was lost on purpose."""
VALUES = [b"%d" % number * 50 for number in range(60)]
NEVER_COMMITTED = b"of a transaction that its application has not ended"
QUIET = {"log_level": 2}
"""Connections that end are what these tests are about."""


@pytest.fixture
def proxy(broker: RunningBroker) -> Iterator[ChaosProxy]:
    with ChaosProxy(broker.bootstrap_servers) as running:
        yield running


def producer(bootstrap_servers: str, **properties: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap_servers, **QUIET, **properties})


def write(bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
    """With librdkafka, spread over the partitions, all acknowledged."""
    writer = producer(bootstrap_servers, **{"linger.ms": 0})
    for value in values:
        writer.produce(topic, value, key=value)
    assert writer.flush(TIMEOUT_S) == 0


def read(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Everything committed in a topic, up to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "never joined",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    values, ended = [], 0
    while ended < len(partitions):
        record = consumer.poll(TIMEOUT_S)
        assert record is not None, f"{ended} of {len(partitions)} ends were reported"
        if record.error() is None:
            values.append(record.value() or b"")
        else:
            ended += 1
    consumer.close()
    return values


def advertised(bootstrap_servers: str) -> set[str]:
    """The addresses that a client learns."""
    with administration(bootstrap_servers) as admin:
        brokers = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
        return {f"{broker.host}:{broker.port}" for broker in brokers}


def python_round(bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> list[bytes]:
    """Write and read with kafka-python."""
    writer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers)
    for sent in [writer.send(topic, value) for value in values]:
        sent.get(TIMEOUT_S)
    writer.close()
    reader = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        group_id=f"{topic}-python",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    found = [record.value for _, record in zip(values, reader, strict=False)]
    reader.close()
    return found


@pytest.mark.crash
def test_all_traffic_of_three_brokers_passes(
    three_brokers: ChildProcessCluster, topic: Callable[[str], str]
) -> None:
    by_librdkafka, by_python = topic("librdkafka"), topic("python")
    with ChaosProxy(three_brokers.bootstrap_servers) as proxy:
        servers = proxy.bootstrap_servers
        assert advertised(servers) == set(servers.split(","))
        assert not advertised(servers) & {broker.address for broker in three_brokers.brokers}
        passes = {
            (api, node): proxy.add(Rule(api=api, on="request", broker=node, action="pass"))
            for api in ("Produce", "Fetch")
            for node in (1, 2, 3)
        }
        for name in (by_librdkafka, by_python):
            create_topic(servers, name, partitions=6)
        write(servers, by_librdkafka, VALUES)
        assert Counter(read(servers, by_librdkafka)) == Counter(VALUES)
        assert sorted(python_round(servers, by_python, VALUES)) == sorted(VALUES)
        assert {key for key, rule in passes.items() if not rule.fired} == set()

        # If there were a way round the proxy, it would lead to the record.
        writer = producer(servers, **{"message.timeout.ms": SHORT_S * 1000})
        writer.list_topics(by_librdkafka, TIMEOUT_S)
        proxy.cut()
        outcomes: list[object] = []
        for partition in range(6):
            writer.produce(
                by_librdkafka,
                b"lost",
                partition=partition,
                on_delivery=lambda error, _: outcomes.append(error),
            )
        writer.flush(TIMEOUT_S)
        # By identity: comparing a KafkaError with None leaves an exception pending in C.
        assert not any(outcome is None for outcome in outcomes)
        assert len(outcomes) == 6
    assert Counter(read(three_brokers.bootstrap_servers, by_librdkafka)) == Counter(VALUES)


def test_a_lost_answer_to_a_commit_leaves_a_committed_transaction(
    proxy: ChaosProxy, broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(broker.bootstrap_servers, name)
    rule = proxy.add(Rule(api="EndTxn", on="response", action="drop", transactional_id=f"{name}*"))
    writer = producer(proxy.bootstrap_servers, **{"transactional.id": f"{name}.l0"})
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(name, b"committed")

    with pytest.raises(KafkaException) as refusal:
        writer.commit_transaction(SHORT_S)

    assert refusal.value.args[0].name() == "_TIMED_OUT"
    rule.wait_fired()
    assert read(broker.bootstrap_servers, name) == [b"committed"]


def test_a_held_commit_ends_a_later_transaction_of_the_same_producer(
    proxy: ChaosProxy, broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    """KAFKA-17754 on a real broker: why an incarnation carries one transaction and no more."""
    name = topic("records")
    create_topic(broker.bootstrap_servers, name)
    rule = proxy.add(
        Rule(api="EndTxn", on="request", action="hold", transactional_id=name, times=1)
    )
    writer = producer(
        proxy.bootstrap_servers, **{"transactional.id": name, "socket.timeout.ms": 1000}
    )
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(name, b"first")
    # Its first request is held, its own retry succeeds.
    writer.commit_transaction(TIMEOUT_S)
    assert (rule.fired, len(rule.held)) == (1, 1)
    writer.begin_transaction()
    writer.produce(name, NEVER_COMMITTED)
    assert writer.flush(TIMEOUT_S) == 0
    assert read(broker.bootstrap_servers, name) == [b"first"]

    rule.release()

    assert proxy.delivered == 1
    eventually(lambda: read(broker.bootstrap_servers, name) == [b"first", NEVER_COMMITTED])


def test_an_error_in_place_of_an_answer_hides_what_was_done(
    proxy: ChaosProxy, broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(broker.bootstrap_servers, name)
    proxy.add(Rule(api="EndTxn", on="response", action="error", error="PRODUCER_FENCED", times=1))
    passing = [
        proxy.add(Rule(api=api, on="response", action="error", error=error, times=1))
        for api, error in {
            "Produce": "NOT_LEADER_FOR_PARTITION",
            "InitProducerId": "COORDINATOR_LOAD_IN_PROGRESS",
            "AddPartitionsToTxn": "CONCURRENT_TRANSACTIONS",
            "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
        }.items()
    ]
    writer = producer(proxy.bootstrap_servers, **{"transactional.id": name})
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(name, b"committed")
    writer.flush(TIMEOUT_S)

    with pytest.raises(KafkaException) as refusal:
        writer.commit_transaction(TIMEOUT_S)

    assert refusal.value.args[0].name() == "_FENCED"
    assert [rule.fired for rule in passing] == [1] * len(passing)
    assert read(broker.bootstrap_servers, name) == [b"committed"]


def test_kafka_python_survives_what_passes_by(
    proxy: ChaosProxy, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(proxy.bootstrap_servers, name)
    rules = [
        proxy.add(Rule(api="Produce", on="request", action="split", chunk_bytes=1)),
        proxy.add(Rule(api="Produce", on="response", action="close", times=1)),
        proxy.add(Rule(api="Fetch", on="response", action="slow", bytes_per_s=20_000)),
        proxy.add(Rule(api="FindCoordinator", on="response", action="delay", delay_ms=100)),
        proxy.add(Rule(api="OffsetCommit", on="request", action="duplicate")),
    ]

    assert python_round(proxy.bootstrap_servers, name, [b"once"]) == [b"once"]
    assert [rule.fired > 0 for rule in rules] == [True] * len(rules)


def test_a_client_goes_on_when_a_cut_is_healed(
    proxy: ChaosProxy, topic: Callable[[str], str]
) -> None:
    name = topic("records")
    create_topic(proxy.bootstrap_servers, name)
    writer = producer(proxy.bootstrap_servers)
    writer.produce(name, b"before")
    assert writer.flush(TIMEOUT_S) == 0

    proxy.cut()
    writer.produce(name, b"during")
    assert writer.flush(1) == 1
    proxy.heal()

    assert writer.flush(TIMEOUT_S) == 0
    assert read(proxy.bootstrap_servers, name) == [b"before", b"during"]

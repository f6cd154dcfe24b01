"""Both flavours of the consumer keep the contract on a real Kafka, and share a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.coordinator.base import BaseCoordinator
from kafka.errors import KafkaTimeoutError

from onceflow.errors import ConfigError
from onceflow_connectors.consumer import Position, confluent, kafka_python
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.consumer import ConsumerContract
from tests.support.contracts.consumer_steps import enter, expect, sequenced, settle, take
from tests.support.contracts.lineage import LineageContract
from tests.support.contracts.real_consumer import FLAVOURS, NOBODY, RealConsumerKafka
from tests.support.outside.topics import add_partitions

WITHOUT_ANSWER_S = 1


class TestConsumer(ConsumerContract, LineageContract):
    @pytest.fixture(params=sorted(FLAVOURS))
    def kafka(self, request: pytest.FixtureRequest, broker: RunningBroker) -> RealConsumerKafka:
        return RealConsumerKafka(broker.bootstrap_servers, FLAVOURS[request.param])

    @pytest.fixture(autouse=True)
    def _impatient(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no broker answers, a consumer need not wait as long as for users."""
        if request.function.__name__ == "test_an_address_without_broker_is_named":
            defaults = {**kafka_python._DEFAULTS, "bootstrap_timeout_ms": 1_000 * WITHOUT_ANSWER_S}
            monkeypatch.setattr(kafka_python, "_DEFAULTS", defaults)
            monkeypatch.setattr(confluent, "CONNECT_TIMEOUT_S", WITHOUT_ANSWER_S)


def test_a_refused_connection_is_said_to_be_refused() -> None:
    """Not for kafka-python, which leaves sockets of refused connections to the collector."""
    consumer = FLAVOURS["confluent"].consumer(NOBODY, group="group", topics=["any"])
    with pytest.raises(
        ConfigError, match=r"no broker answers: 127\.0\.0\.1:1;.*Connection refused"
    ):
        enter(consumer)


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
@pytest.mark.parametrize("metadata", ["app-7", "x" * 24, "y" * 40])
def test_metadata_of_other_clients_is_refused_whatever_memory_follows_it(
    broker: RunningBroker, topic: Callable[[str], str], flavour: str, metadata: str
) -> None:
    """Java and kafka-python end metadata by its length, and confluent-kafka by a zero byte."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS[flavour])
    name = topic("metadata")
    kafka.create_topic(name, 1)
    kafka.write(name, sequenced(1, 2))
    kafka.commit_without_end(name, Position(name, 0, 1, metadata))
    with (
        pytest.raises(ConfigError, match="this offset was committed by another program"),
        kafka.consumer([name], name) as records,
    ):
        take(records, 1)


@pytest.mark.parametrize("order", [("confluent", "kafka_python"), ("kafka_python", "confluent")])
def test_one_flavour_goes_on_where_the_other_stopped(
    broker: RunningBroker, topic: Callable[[str], str], order: tuple[str, str]
) -> None:
    first, second = (RealConsumerKafka(broker.bootstrap_servers, FLAVOURS[name]) for name in order)
    name = topic("shared")
    first.create_topic(name, 1)
    first.write(name, sequenced(1, 2, 3))
    with first.consumer([name], name) as records:
        expect(records, "0/1", "0/2", "0/3")
        records.commit()
    first.write(name, sequenced(2, 3) + sequenced(4))
    with second.consumer([name], name) as records:
        expect(records, "0/4")
        assert records.counters.discarded == 2


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_added_partitions_are_taken_over_by_a_leader_that_hardly_polls(
    broker: RunningBroker, topic: Callable[[str], str], flavour: str
) -> None:
    """The answer that makes it hold them comes between two of its polls."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS[flavour])
    name = topic("growing")
    kafka.create_topic(name, 1)
    fresh = FLAVOURS[flavour].fresh_metadata
    with kafka.consumer([name], name, properties=fresh) as records:
        settle(records, partitions=1, polls_s=[0.001])
        add_partitions(broker.bootstrap_servers, name, 3)
        settle(records, partitions=3, polls_s=[0.001])
        kafka.write(name, sequenced(1, partition=2))
        expect(records, "2/1")


def test_a_join_that_timed_out_is_tried_again(
    broker: RunningBroker, topic: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the coordinator cannot be reached in time. Only kafka-python must be told to."""
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["kafka_python"])
    name = topic("late")
    kafka.create_topic(name, 1)
    joins = [KafkaTimeoutError("the coordinator did not answer")]
    join = BaseCoordinator._do_join_and_sync_async

    async def fail_once(coordinator: BaseCoordinator) -> Any:
        if joins:
            raise joins.pop()
        return await join(coordinator)

    monkeypatch.setattr(BaseCoordinator, "_do_join_and_sync_async", fail_once)
    with kafka.consumer([name], name) as records:
        settle(records, partitions=1, polls_s=[0.001])
    assert joins == []

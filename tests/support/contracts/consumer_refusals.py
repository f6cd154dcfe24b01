"""Cases that every flavour of the consumer must refuse. Part of `ConsumerContract`."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import pytest

from onceflow.errors import ConfigError, InvariantError
from tests.support.contracts.consumer_steps import ConsumerKafka, enter


class Refusals:
    """Collected through subclasses, each with its own fixture `kafka`."""

    @pytest.fixture
    def name(self) -> str:
        """Unique name for a topic and a group."""
        return f"consumer-{uuid.uuid4().hex[:12]}"

    @pytest.fixture
    def topic(self, kafka: ConsumerKafka, name: str) -> str:
        kafka.create_topic(name, 1)
        return name

    def test_settings_that_break_the_guarantee_are_refused_together(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        properties = {**kafka.uncommitted, **kafka.auto_commit, **kafka.cooperative}
        with pytest.raises(ConfigError) as caught:
            enter(kafka.consumer([topic], topic, properties=properties))
        assert len(caught.value.faults) == 3
        assert "'read_uncommitted' would break the guarantee" in str(caught.value)

    def test_the_group_of_a_pipeline_is_refused(self, kafka: ConsumerKafka, topic: str) -> None:
        with pytest.raises(ConfigError, match="reserved for the position of a pipeline"):
            enter(kafka.consumer([topic], "onceflow.page-views"))

    @pytest.mark.parametrize("topics", ["page-views", []])
    def test_no_list_of_topics_is_refused(self, kafka: ConsumerKafka, topics: Any) -> None:
        with pytest.raises(ConfigError, match="is not a list of topics"):
            enter(kafka.consumer(topics, "group"))

    def test_a_topic_that_does_not_exist_is_named(
        self, kafka: ConsumerKafka, topic: str, name: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"topics cannot be read: {name}-none"):
            enter(kafka.consumer([topic, f"{name}-none"], name))

    def test_an_address_without_broker_is_named(self, kafka: ConsumerKafka) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(ConfigError, match=f"no broker answers: {address}"):
                enter(kafka.consumer_at(address))

    def test_a_consumer_is_of_no_use_outside_its_block(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        consumer = kafka.consumer([topic], topic)
        with pytest.raises(InvariantError, match="`with` block"):
            consumer.poll(0.0)
        with consumer:
            pass
        assert list(consumer) == []

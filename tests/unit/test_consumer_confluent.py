"""The confluent flavour, where librdkafka's timing decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from onceflow_connectors.consumer.confluent import Consumer


class ClosingConsumer:
    """As librdkafka's, if a rebalance ends just when it is closed."""

    def __init__(self, _: object) -> None:
        self._is_closing = False
        self.on_assign: Callable[[Any, list[TopicPartition]], None] | None = None

    def list_topics(self, **_: object) -> SimpleNamespace:
        topic = SimpleNamespace(error=None, partitions={0: None})
        return SimpleNamespace(topics={"out": topic})

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._is_closing:
            raise KafkaException(KafkaError(KafkaError._DESTROY))
        return [TopicPartition("out", 0, 1)]

    def subscribe(self, _: object, on_assign: Any, **__: object) -> None:
        self.on_assign = on_assign

    def close(self) -> None:
        assert self.on_assign is not None
        self._is_closing = True
        self.on_assign(self, [TopicPartition("out", 0)])


def test_an_assignment_that_comes_while_closing_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", ClosingConsumer)
    with Consumer("nowhere:1", group="g", topics=["out"]):
        pass

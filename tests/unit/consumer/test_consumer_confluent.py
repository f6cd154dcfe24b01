"""The confluent flavour, where librdkafka's timing decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from onceflow.protocol.record import HEADER_NAME, HeaderPacker
from onceflow_connectors.consumer import Hooks
from onceflow_connectors.consumer.confluent import Consumer

AT_THE_START = Hooks(load_position=lambda *_: None)
BATCH = {"pipeline_tag": 7, "generation": 1, "plan_tag": 3, "batch_id": 0}


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


class RebalancingConsumer(ClosingConsumer):
    """As librdkafka's: callbacks are called inside `consume`, before or after records come."""

    def __init__(self, _: object) -> None:
        super().__init__(_)
        self.events: list[str] = ["assign", "revoke", "assign"]
        self.assigned: list[list[str]] = []
        self.on_revoke: Callable[..., None] | None = None
        self.records: list[Message] = []

    def subscribe(self, _: object, on_assign: Any, on_revoke: Any = None, **__: object) -> None:
        self.on_assign, self.on_revoke = on_assign, on_revoke

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.append([str(p.topic) for p in partitions])

    def consume(self, most: int, _: float) -> list[Message]:
        event = self.events.pop(0) if self.events else ""
        if event == "assign":
            assert self.on_assign is not None
            self.on_assign(self, [TopicPartition("out", 0)])
        elif event == "revoke":
            assert self.on_revoke is not None
            self.on_revoke(self, [])
        return self.records

    def close(self) -> None:
        pass


def test_partitions_that_were_revoked_before_they_had_a_place_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RebalancingConsumer] = []

    def make(settings: object) -> RebalancingConsumer:
        made.append(RebalancingConsumer(settings))
        return made[0]

    monkeypatch.setattr(confluent_kafka, "Consumer", make)
    failures = [ConnectionError("the database is away")]

    def load(*_: object) -> None:
        if failures:
            raise failures.pop()

    hooks = Hooks(load_position=load)
    with Consumer("nowhere:1", group="g", topics=["out"], hooks=hooks) as consumer:
        with pytest.raises(ConnectionError):
            consumer.poll(0)
        assert made[0].assigned == [[]]
        consumer.poll(0)
        assert made[0].assigned == [[]]
        consumer.poll(0)
        assert made[0].assigned == [[], [], ["out"]]


def test_records_of_the_call_in_which_a_rebalance_happened_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = RebalancingConsumer({})
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _: made)
    made.events = ["assign", "", "assign"]
    headers: Any = [(HEADER_NAME, HeaderPacker(**BATCH).pack(0, 1))]
    made.records = [Message(topic="out", partition=0, offset=5, timestamp=(1, 7), headers=headers)]
    with Consumer("nowhere:1", group="g", topics=["out"], hooks=AT_THE_START) as consumer:
        assert consumer.take(10, 0) == []
        assert [record.offset for record in consumer.take(10, 0)] == [5]
        made.records = []
        assert consumer.take(10, 0) == []
        assert made.assigned == [[], ["out"], [], ["out"]]

"""The topic of parameters, whatever becomes of it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError, CorruptionError
from onceflow.processing.parameters import Parameter, Parameters
from onceflow.runtime.source.followed_topic import FollowedTopic
from onceflow.runtime.source.parameters import ParameterFollower, ParameterTopic
from tests.support.brokers.choice import RunningBroker
from tests.support.outside.topics import (
    add_partitions,
    create_topic,
    delete_before,
    delete_topic,
    ordered_producer,
    recreate_topic,
)

DECLARED = Parameters(
    {"limit": Parameter("decimal(10,2)", "100"), "mode": Parameter("string", '"strict"')}
)


class Control:
    """A topic of parameters, and what a driver learns from it."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.brokers, self.topic = broker.bootstrap_servers, topic
        self._followers: list[ParameterFollower] = []
        self.restart()

    def restart(self) -> None:
        """As a driver that starts: nothing is known but what is in an offset."""
        settings = ParameterTopic(self.topic, DECLARED)
        self.follower = ParameterFollower(settings, Connection(self.brokers), SystemClock())
        self._followers.append(self.follower)

    def change(self, name: str, *values: bytes | None, partition: int = 0) -> None:
        producer = ordered_producer(self.brokers)
        for value in values:
            producer.produce(self.topic, value, key=name, partition=partition)
        assert producer.flush(30) == 0

    def next(self, told: Mapping[str, Any] | None) -> Mapping[str, Any]:
        found = self.follower.next(told)
        assert found is not None
        return found

    def close(self) -> None:
        for each in self._followers:
            each.close()


@pytest.fixture
def control(broker: RunningBroker, topic: Any) -> Iterator[Control]:
    made = Control(broker, topic("parameters"))
    create_topic(made.brokers, made.topic)
    yield made
    made.close()


def test_an_offset_has_what_was_set_since_the_one_before_it(control: Control) -> None:
    assert control.follower.next(None) is None
    control.change("limit", b"5", b"6")
    control.change("of-another-pipeline", b"{")
    first = control.next(None)
    assert first["values"] == {"limit": "6.00"}
    assert control.next(first) is first
    control.change("mode", b'"lax"')
    control.change("limit", None)
    second = control.next(first)
    assert second["values"] == {"mode": "lax"}
    # The same again for the same offset, also by another process: a plan may be lost.
    assert control.next(first) == second
    assert control.next(None)["values"] == {"mode": "lax"}
    control.restart()
    assert control.next(first) == second
    control.change("mode", None)
    assert control.next(second)["values"] == {}


def test_what_cannot_be_used_is_counted_once(control: Control) -> None:
    control.change("limit", b"5", b"{", b'"many"', b"null", b"9" * 900_000)
    told = control.next(None)
    assert told["values"] == {"limit": "5.00"}
    assert told["refused"] == [
        4,
        "parameter limit: expected at most 4096 bytes, found 900000",
    ]
    assert control.next(told) is told
    control.restart()
    assert control.next(told) is told


def test_a_topic_that_was_created_again_is_read_again_however_long_it_is(control: Control) -> None:
    control.change("limit", b"5", b"6")
    control.change("mode", b'"lax"')
    told = control.next(None)
    for values in ([b"7"], [b"8"], [b"9", b"10"]):
        recreate_topic(control.brokers, control.topic)
        control.change("limit", *values)
        control.restart()
        # What the topic does not tell any more stays.
        told = control.next(told)
        assert told["values"] == {"limit": f"{values[-1].decode()}.00", "mode": "lax"}


def test_what_was_deleted_before_it_was_read_is_left_out(control: Control) -> None:
    control.change("limit", b"5")
    told = control.next(None)
    control.change("limit", b"6", b"7")
    control.change("mode", b'"lax"')
    delete_before(control.brokers, control.topic, 0, 3)
    control.restart()
    assert control.next(told)["values"] == {"limit": "5.00", "mode": "lax"}


def test_several_partitions_are_refused_as_soon_as_there_is_something_in_them(
    control: Control,
) -> None:
    control.change("limit", b"5")
    told = control.next(None)
    add_partitions(control.brokers, control.topic, 2)
    control.restart()
    assert control.next(told) is told
    control.change("limit", b"6", partition=1)
    with pytest.raises(ConfigError, match=r"several partitions.*expected 1"):
        control.next(told)


def test_a_topic_that_is_gone_is_named(control: Control) -> None:
    delete_topic(control.brokers, control.topic)
    with pytest.raises(ConfigError, match=rf"does not exist.*{control.topic}"):
        control.follower.next(None)


def test_a_topic_that_is_created_again_while_it_is_read_is_noticed(control: Control) -> None:
    """Its new records have the same offsets."""
    log = FollowedTopic("parameters", control.topic, Connection(control.brokers), SystemClock())
    with closing(log):
        control.change("limit", b"1", b"2")
        start = log.planner.initial_position()
        records = log.read(start, log.planner.latest_position(start, None))
        assert next(records).value == b"1"
        recreate_topic(control.brokers, control.topic)
        control.change("limit", b"3", b"4")
        with pytest.raises(CorruptionError, match=f"created again.*{control.topic}.*topic id"):
            list(records)

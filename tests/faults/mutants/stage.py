"""One pipeline and its drivers without Spark, on the Kafka in memory and on a real one alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from tests.support.clock import ManualClock
from tests.support.contracts.real_sink import RealSink
from tests.support.drivers.driver import PARTITIONS, Driver
from tests.support.eventually import eventually
from tests.support.fakes.sink import MAX_CLIENT_BYTES, FakeKafka
from tests.support.outside.groups import group_offsets
from tests.support.outside.history import Written, read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic

VALUES = [b'{"n":%d}' % n for n in range(40)]
SOON_S = 10.0


class World(Protocol):
    """The Kafka of a stage, real or simulated."""

    clock: Clock
    address: str

    def create_topic(self, name: str) -> None:
        """With PARTITIONS partitions."""

    def written(self, topic: str) -> Sequence[Written]:
        """Read as a read_committed reader does, once everything is decided."""

    def timestamps_ms(self, topic: str) -> Sequence[int | None]:
        """Return the timestamps of the same records."""

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Return the committed offsets, as lag tools see them."""


class FakeConnector:
    """As much of a connector as a driver asks for, in memory."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def incarnation(self, transactional_id: str, _: Connection) -> Incarnation:
        return self._kafka.incarnation(transactional_id)

    def appender(self, _: Connection) -> Appender:
        return self._kafka.appender()

    def ledger(self, pipeline: str, _: Connection) -> Ledger:
        return self._kafka.ledger(pipeline)


class FakeWorld:
    """Implements `World` in memory."""

    address = "memory"

    def __init__(self) -> None:
        self.clock: Clock = ManualClock()
        self.kafka = FakeKafka(self.clock)

    def create_topic(self, name: str) -> None:
        self.kafka.create_topic(name, PARTITIONS, MAX_CLIENT_BYTES)

    def written(self, topic: str) -> Sequence[Written]:
        eventually(lambda: self._undecided(topic), lambda count: count == 0, clock=self.clock)
        seen = self.kafka.committed(topic)
        return [Written(r.partition, n, r.key, r.value, r.header) for n, r in enumerate(seen)]

    def timestamps_ms(self, topic: str) -> Sequence[int | None]:
        self.written(topic)
        return [record.timestamp_ms for record in self.kafka.committed(topic)]

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        self.kafka.land_markers()
        return self.kafka.group_offsets(group)

    def _undecided(self, topic: str) -> int:
        self.kafka.land_markers()
        return self.kafka.undecided(topic)


class RealWorld:
    """Implements `World` on a broker; reads the output by a plain client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.clock: Clock = SystemClock()

    def create_topic(self, name: str) -> None:
        create_topic(self.address, name, PARTITIONS)

    def written(self, topic: str) -> Sequence[Written]:
        return read_topic(self.address, topic)

    def timestamps_ms(self, topic: str) -> Sequence[int | None]:
        sink = RealSink(self.address)
        try:
            return [record.timestamp_ms for record in sink.committed(topic)]
        finally:
            sink.broker.close()

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        return group_offsets(self.address, group)


class Stage:
    """One pipeline and any number of drivers of it.

    Args:
        world: where.
        name: of the pipeline and of its output topic.
        stack: ends the drivers.
    """

    def __init__(self, world: World, name: str, stack: ExitStack) -> None:
        self.world = world
        self.name = name
        self._stack = stack
        world.create_topic(name)

    def driver(self, **settings: object) -> Driver:
        settings = {"clock": self.world.clock, **settings}
        made = Driver(self.world.address, self.name, self.name, **settings)  # type: ignore[arg-type]
        return self._stack.enter_context(made)

    def soon(self) -> Deadline:
        return self.world.clock.within(SOON_S)

    def check(self, batches: int) -> None:
        """So many batches of VALUES are there, each once, without a hole in the sequences."""
        written = self.world.written(self.name)
        assert len(written) == batches * len(VALUES)
        assert anomalies(written) == []

    def group_offsets(self) -> Mapping[tuple[str, int], int]:
        return self.world.group_offsets(f"onceflow.{self.name}")

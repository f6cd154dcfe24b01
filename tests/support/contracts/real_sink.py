"""The sink's contracts on a real Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceflow.clock import Clock, Deadline, SystemClock
from onceflow.contracts.connector import Connection, TopicSpec
from onceflow.contracts.sink import Appender, Incarnation, Ledger, OutputRecord
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.sink.appender import KafkaAppender
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.ledger import KafkaLedger
from tests.support.fakes.sink import MAX_CLIENT_BYTES
from tests.support.outside.groups import group_offsets

BUDGET_S = 20.0


class RealSink:
    """Implements `sink.SinkKafka`."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        self.clock: Clock = SystemClock()
        # The contract plays what a client refuses by itself.
        limit = {"message.max.bytes": str(MAX_CLIENT_BYTES)}
        self.connection = Connection(bootstrap_servers, {**limit, **(properties or {})})
        self.broker = KafkaBroker(self.connection)

    def within(self, seconds: float = BUDGET_S) -> Deadline:
        return self.clock.within(seconds)

    def incarnation(self, transactional_id: str) -> Incarnation:
        return KafkaIncarnation(transactional_id, self.connection)

    def appender(self) -> Appender:
        return KafkaAppender(self.connection)

    def ledger(self, pipeline: str) -> Ledger:
        return KafkaLedger(pipeline, self.connection)

    def create_topic(self, name: str, partitions: int, max_record_bytes: int) -> None:
        # Records with the timestamps of tests would be removed for their age.
        config = {"max.message.bytes": str(max_record_bytes), "retention.ms": "-1"}
        self.broker.create_topic(TopicSpec(name, partitions, config=config), self.within())

    def committed(self, topic: str) -> Sequence[OutputRecord]:
        bounds = self.broker.offsets(topic, self.within())
        ranges = {p: (start, stable) for p, (start, stable, _) in bounds.items()}
        return [
            OutputRecord(r.partition, r.key, r.value, r.header_value(HEADER_NAME), r.timestamp_ms)
            for r in self.broker.read(topic, ranges, self.within())
        ]

    def undecided(self, topic: str) -> int:
        bounds = self.broker.offsets(topic, self.within()).values()
        return sum(end - stable for _, stable, end in bounds)

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        return group_offsets(self.connection.bootstrap_servers, group)

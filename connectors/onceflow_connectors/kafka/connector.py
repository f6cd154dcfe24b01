"""The connector `kafka`: what the service finds under the entry point of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.clock import Deadline
from onceflow.contracts.connector import (
    Broker,
    BulletinBoard,
    Connection,
    PipelineTopics,
    Right,
    Task,
)
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.admin.bulletins import KafkaBulletinBoard
from onceflow_connectors.kafka.admin.rights import grant, rights_of
from onceflow_connectors.kafka.sink.appender import KafkaAppender
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.ledger import KafkaLedger
from onceflow_connectors.kafka.sink.partitioners import partitions_of


class KafkaConnector:
    """Implements `contracts.connector.Connector`."""

    def incarnation(self, transactional_id: str, connection: Connection) -> Incarnation:
        return KafkaIncarnation(transactional_id, connection)

    def appender(self, connection: Connection) -> Appender:
        return KafkaAppender(connection)

    def ledger(self, pipeline: str, connection: Connection) -> Ledger:
        return KafkaLedger(pipeline, connection)

    def broker(self, connection: Connection) -> Broker:
        return KafkaBroker(connection)

    def bulletin_board(self, pipeline: str, connection: Connection) -> BulletinBoard:
        return KafkaBulletinBoard(pipeline, connection)

    def rights(self, topics: PipelineTopics, task: Task, group: str) -> Sequence[Right]:
        return rights_of(topics, task, group)

    def grant(
        self, principal: str, rights: Sequence[Right], connection: Connection, deadline: Deadline
    ) -> None:
        grant(principal, rights, connection, deadline)

    def partitions_of(
        self, partitioner: str, keys: Sequence[bytes | None], partitions: int
    ) -> list[int]:
        return partitions_of(partitioner, keys, partitions)

    def encode_avro(self, schema: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[bytes]:
        from onceflow_connectors.kafka.sink.avro import encode_avro  # noqa: PLC0415  needs fastavro

        return encode_avro(schema, rows)


connector = KafkaConnector()
"""Named by the entry point."""

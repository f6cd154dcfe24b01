"""The connector `kafka`: what the service finds under the entry point of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.contracts.connector import Connector
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetSpec
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.admin.bulletins import KafkaBulletinBoard
from onceflow_connectors.kafka.admin.rights import grant, rights_of
from onceflow_connectors.kafka.delivery.block import KafkaBlock
from onceflow_connectors.kafka.delivery.positions import KafkaPositions
from onceflow_connectors.kafka.delivery.target import KafkaTarget
from onceflow_connectors.kafka.sink.appender import KafkaAppender
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.ledger import KafkaLedger
from onceflow_connectors.kafka.sink.partitioners import partitions_of


def _encode_avro(schema: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[bytes]:
    from onceflow_connectors.kafka.sink.avro import encode_avro  # noqa: PLC0415  needs fastavro

    return encode_avro(schema, rows)


def _topic_target(spec: TargetSpec, topic: str, create: bool) -> Target:
    address = spec.connection.bootstrap_servers
    block = KafkaBlock(bootstrap_servers=address, topic=topic, create=create)
    return KafkaTarget(block, spec, spec.connection)


connector = Connector(
    incarnation=KafkaIncarnation,
    appender=KafkaAppender,
    ledger=KafkaLedger,
    broker=KafkaBroker,
    bulletin_board=KafkaBulletinBoard,
    positions=KafkaPositions,
    topic_target=_topic_target,
    rights=rights_of,
    grant=grant,
    partitions_of=partitions_of,
    encode_avro=_encode_avro,
)

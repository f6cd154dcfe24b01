"""The connector `kafka`: what the service finds under the entry point of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.contracts.connector import Connector
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.admin.bulletins import KafkaBulletinBoard
from onceflow_connectors.kafka.admin.rights import grant, rights_of
from onceflow_connectors.kafka.delivery.positions import KafkaPositions
from onceflow_connectors.kafka.sink.appender import KafkaAppender
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.ledger import KafkaLedger
from onceflow_connectors.kafka.sink.partitioners import partitions_of


def _encode_avro(schema: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[bytes]:
    from onceflow_connectors.kafka.sink.avro import encode_avro  # noqa: PLC0415  needs fastavro

    return encode_avro(schema, rows)


connector = Connector(
    incarnation=KafkaIncarnation,
    appender=KafkaAppender,
    ledger=KafkaLedger,
    broker=KafkaBroker,
    bulletin_board=KafkaBulletinBoard,
    positions=KafkaPositions,
    rights=rights_of,
    grant=grant,
    partitions_of=partitions_of,
    encode_avro=_encode_avro,
)

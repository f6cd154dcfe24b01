"""The connector is found by its name, and making clients connects to no broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.source import SourceSpec
from onceflow.errors import ConfigError
from onceflow_connectors.kafka.connector import connector
from onceflow_connectors.kafka.source.source import KafkaSource

NOBODY = Connection("127.0.0.1:1", {"no.such.property": "would be refused by any client"})


def test_it_is_found_by_name() -> None:
    assert find_connector("kafka") is connector


def test_an_unknown_connector_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"carrier-pigeon; expected one of .*kafka"):
        find_connector("carrier-pigeon")


def test_making_things_only_stores() -> None:
    spec = SourceSpec("clicks", "json", pa.schema([]))
    KafkaSource(topics=("clicks",)).planner(spec, NOBODY).close()
    connector.incarnation("id", NOBODY).discard()
    connector.ledger("pipeline", NOBODY).close()
    connector.broker(NOBODY).close()


def test_partitions_and_avro_are_at_hand() -> None:
    assert connector.partitions_of("crc32", [None, b""], 4) == [0, 0]
    assert connector.encode_avro('"string"', []) == []

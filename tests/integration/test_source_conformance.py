"""The Kafka source keeps every promise of the contract, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from onceflow.contracts.connector import Connection
from onceflow.testing.sources import (
    CompactionPromises,
    GrowthPromises,
    IdentityPromises,
    RetentionPromises,
    SourceContract,
    TransactionPromises,
)
from onceflow_connectors.kafka.source.consumers import close_idle_readers
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_origin import KafkaOrigin


class TestKafkaSource(
    SourceContract,
    TransactionPromises,
    CompactionPromises,
    RetentionPromises,
    IdentityPromises,
    GrowthPromises,
):
    @pytest.fixture
    def connection(self, broker: RunningBroker) -> Connection:
        return Connection(broker.bootstrap_servers)

    @pytest.fixture
    def origin(self, broker: RunningBroker, topic: Callable[[str], str]) -> Iterator[KafkaOrigin]:
        origin = KafkaOrigin(broker.bootstrap_servers, topic("origin"))
        origin.create()
        yield origin
        close_idle_readers()

"""The Kafka source keeps every promise of the contract, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec
from onceflow.testing.sources import (
    CompactionPromises,
    GrowthPromises,
    IdentityPromises,
    RetentionPromises,
    SourceContract,
    SourceUnderTest,
    TransactionPromises,
)
from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_origin import KafkaOrigin
from tests.support.reading import KafkaUnderTest


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
    def origin(self, broker: RunningBroker, topic: Callable[[str], str]) -> KafkaOrigin:
        origin = KafkaOrigin(broker.bootstrap_servers, topic("origin"))
        origin.create()
        return origin

    @pytest.fixture
    def source(
        self, origin: KafkaOrigin, connection: Connection, spec: SourceSpec
    ) -> SourceUnderTest:
        return KafkaUnderTest(origin.block, connection, spec)

    # A reader dies with its executor only: `tests/faults/test_executors.py`.
    test_killed_reader = None  # type: ignore[assignment]

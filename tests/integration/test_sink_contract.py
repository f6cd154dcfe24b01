"""The Kafka sink keeps the contract on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers import RunningBroker
from tests.support.contract_sink import SinkContract
from tests.support.real_sink import RealSink


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def kafka(self, broker: RunningBroker) -> Iterator[RealSink]:
        sink = RealSink(broker.bootstrap_servers)
        yield sink
        sink.broker.close()

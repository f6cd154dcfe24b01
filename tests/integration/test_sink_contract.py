"""The Kafka sink keeps the contract on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.appender import AppenderContract
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import SinkContract


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def kafka(self, broker: RunningBroker) -> Iterator[RealSink]:
        sink = RealSink(broker.bootstrap_servers)
        yield sink
        sink.broker.close()


class TestKafkaAppender(AppenderContract):
    # Each record in a request of its own, so that one can be refused before the next is sent.
    @pytest.fixture(params=[{}, {"batch.num.messages": "1"}], ids=["requests", "single requests"])
    def kafka(self, broker: RunningBroker, request: pytest.FixtureRequest) -> Iterator[RealSink]:
        sink = RealSink(broker.bootstrap_servers, request.param)
        yield sink
        sink.broker.close()

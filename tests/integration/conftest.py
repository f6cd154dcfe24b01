"""What tests of the sink and the ledger stand on: the connector, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers import RunningBroker
from tests.support.contract_sink import Scene
from tests.support.real_sink import RealSink


@pytest.fixture
def sink(broker: RunningBroker) -> Iterator[RealSink]:
    sink = RealSink(broker.bootstrap_servers)
    yield sink
    sink.broker.close()


@pytest.fixture
def scene(sink: RealSink) -> Iterator[Scene]:
    scene = Scene(sink)
    yield scene
    scene.close()

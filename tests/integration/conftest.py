"""What tests of the sink and the ledger stand on: the connector, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from kafka.net.inet import KafkaNetSocket

from tests.support.brokers import RunningBroker
from tests.support.contract_sink import Scene
from tests.support.real_sink import RealSink


@pytest.fixture(scope="session", autouse=True)
def _closed_attempts() -> Iterator[None]:
    """kafka-python leaves sockets of failed attempts to the collector, which warns of them."""
    connect = KafkaNetSocket.sock_connect

    async def connect_or_close(self: Any, net: Any, socket: Any, *rest: Any, **more: Any) -> Any:
        try:
            return await connect(self, net, socket, *rest, **more)
        except BaseException:
            socket.close()
            raise

    with patch.object(KafkaNetSocket, "sock_connect", connect_or_close):
        yield


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

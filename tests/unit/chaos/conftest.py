"""A client, the proxy, and a broker that does not think."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos import ChaosProxy
from tests.support.fakes.raw_kafka import ListeningBroker, RawClient


@pytest.fixture
def listening() -> Iterator[ListeningBroker]:
    with ListeningBroker() as running:
        yield running


@pytest.fixture
def proxy(listening: ListeningBroker) -> Iterator[ChaosProxy]:
    with ChaosProxy(listening.address) as running:
        yield running


@pytest.fixture
def client(proxy: ChaosProxy) -> Iterator[RawClient]:
    with RawClient(proxy.bootstrap_servers) as connected:
        yield connected

"""Shared by many tests here: a job, and the connector's sink and ledger, on a real broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from kafka.net.inet import KafkaNetSocket

from tests.support.brokers.choice import RunningBroker
from tests.support.contracts.real_consumer import FLAVOURS, RealConsumerKafka
from tests.support.contracts.real_sink import RealSink
from tests.support.contracts.sink import Scene
from tests.support.jobs.enriching import Enriching
from tests.support.jobs.views import ViewsJob
from tests.support.sites.receiver import Receiver, running_receiver

ROOT = Path(__file__).parents[2]


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
def job(broker: RunningBroker, tmp_path: Path) -> ViewsJob:
    """A job with an input topic, and nothing in it."""
    made = ViewsJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    return made


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


@pytest.fixture(scope="module")
def answering() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def enriching(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path, answering: Receiver
) -> Enriching:
    kafka = RealConsumerKafka(broker.bootstrap_servers, FLAVOURS["confluent"])
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    return Enriching(kafka, tmp_path, topic("asked"), path, service=answering)

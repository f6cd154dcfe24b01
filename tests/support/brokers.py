"""Which real Kafka a run of the tests uses, and how it is started.

In this order: the one that `ONCEFLOW_TEST_BOOTSTRAP_SERVERS` names; Testcontainers, where a Docker
engine answers and the image is there or can be built; brokers as child processes of this one.

`ONCEFLOW_TEST_KAFKA` chooses an older Kafka for the last two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from onceflow.devkit.broker import EmbeddedCluster
from onceflow.devkit.broker_start import ClusterOptions
from tests.support import kafka_container
from tests.support.kafka_version import kafka_jars, kafka_title

ADDRESS_VARIABLE = "ONCEFLOW_TEST_BOOTSTRAP_SERVERS"
KIND_VARIABLE = "ONCEFLOW_TEST_BROKER"
"""`testcontainers`: fail where it cannot be had, rather than take another; `embedded`: take that.
"""


@dataclass(frozen=True)
class RunningBroker:
    """A Kafka of one broker, shared by all tests of a run."""

    bootstrap_servers: str


@dataclass(frozen=True)
class BrokerChoice:
    """How this run gets its broker.

    Args:
        title: for the top and the bottom of the report.
        start: yields a broker that lives while the context is entered.
        is_container: whether Testcontainers runs it.
    """

    title: str
    start: Callable[[], AbstractContextManager[RunningBroker]]
    is_container: bool = False


def choose_broker() -> BrokerChoice:
    """Decide, building the image if that is what is missing."""
    wanted = os.environ.get(KIND_VARIABLE, "")
    if address := os.environ.get(ADDRESS_VARIABLE):
        return BrokerChoice(
            f"existing broker at {address}", lambda: nullcontext(RunningBroker(address))
        )
    if wanted == "embedded":
        return BrokerChoice(f"embedded broker (asked for), {kafka_title()}", _embedded)
    try:
        engine = kafka_container.provide_image()
    except kafka_container.UnavailableError as error:
        if wanted == "testcontainers":
            raise
        title = f"embedded broker (no Testcontainers: {error}), {kafka_title()}"
        return BrokerChoice(title, _embedded)
    title = f"Testcontainers broker ({engine}), {kafka_title()}"
    return BrokerChoice(title, _container, is_container=True)


@contextmanager
def _embedded() -> Iterator[RunningBroker]:
    with EmbeddedCluster(ClusterOptions(jars=kafka_jars())) as cluster:
        yield RunningBroker(cluster.bootstrap_servers)


@contextmanager
def _container() -> Iterator[RunningBroker]:
    kafka_container.remove_containers()
    try:
        with kafka_container.KafkaContainer() as container:
            yield RunningBroker(container.bootstrap_servers)
    finally:
        kafka_container.remove_containers()

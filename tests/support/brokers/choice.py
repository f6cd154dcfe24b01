"""Which real Kafka a run of the tests uses, and how it is started.

In this order: the one that `ONCEFLOW_TEST_BOOTSTRAP_SERVERS` names; Testcontainers, where a Docker
engine answers and the image is there or can be built; brokers as child processes of this one.

`ONCEFLOW_TEST_KAFKA` chooses an older Kafka for the last two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.brokers import image as kafka_container
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.containers import ContainerCluster
from tests.support.brokers.version import kafka_title

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
    """How this run gets its brokers.

    Args:
        title: for the top and the bottom of the report.
        address: of a broker that runs already; or empty.
    """

    title: str
    address: str = ""
    is_container: bool = False

    def cluster(self, brokers: int) -> ContainerCluster | ChildProcessCluster:
        """Brokers that live while the cluster is entered."""
        if self.is_container:
            return ContainerCluster(brokers)
        return ChildProcessCluster(ClusterOptions(brokers))

    @contextmanager
    def start(self) -> Iterator[RunningBroker]:
        """One broker that lives while the context is entered."""
        if self.address:
            yield RunningBroker(self.address)
            return
        with self.cluster(1) as cluster:
            yield RunningBroker(cluster.bootstrap_servers)


def choose_broker() -> BrokerChoice:
    """Decide, building the image if that is what is missing."""
    wanted = os.environ.get(KIND_VARIABLE, "")
    if address := os.environ.get(ADDRESS_VARIABLE):
        return BrokerChoice(f"existing broker at {address}", address)
    if wanted == "embedded":
        return BrokerChoice(f"embedded broker (asked for), {kafka_title()}")
    try:
        engine = kafka_container.provide_image()
    except kafka_container.UnavailableError as error:
        if wanted == "testcontainers":
            raise
        return BrokerChoice(f"embedded broker (no Testcontainers: {error}), {kafka_title()}")
    title = f"Testcontainers broker ({engine}), {kafka_title()}"
    return BrokerChoice(title, is_container=True)

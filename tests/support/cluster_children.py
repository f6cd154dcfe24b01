"""Three brokers as child processes of the tests."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

from onceflow.devkit.broker import EmbeddedBroker, EmbeddedCluster
from onceflow.devkit.broker_config import COPIES
from onceflow.devkit.broker_start import ClusterOptions
from tests.support.cluster import heal, wait_until_whole
from tests.support.kafka_version import kafka_jars


class ChildProcessCluster:
    """Lives as long as it is entered.

    Only here can a disk be full (`cluster_disk.py`) or a clock be wrong (`cluster_clock.py`):
    containers share the clock of their kernel, and the disk of their engine.

    Args:
        options: how it differs; there are three brokers in any case.
    """

    kind = "child processes"

    def __init__(self, options: ClusterOptions | None = None) -> None:
        chosen = replace(options or ClusterOptions(), brokers=COPIES, jars=kafka_jars())
        self._embedded = EmbeddedCluster(chosen)

    def __enter__(self) -> Self:
        self._embedded.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._embedded.close()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        return self._embedded.bootstrap_servers

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """Each of them, in the order of their ids."""
        return self._embedded.brokers

    def wait_until_ready(self) -> None:
        """Wait until every broker answers and every partition has all its replicas in sync.

        Raises:
            ConfigError: a broker ended; quotes its log.
        """
        self._embedded.wait_until_ready()
        wait_until_whole(self)

    def heal(self) -> None:
        """Undo what was done to brokers, and wait until they are ready."""
        heal(self)

"""Starts real Kafka brokers on free ports, and waits until they answer."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import subprocess
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from onceflow.clock import Clock, Deadline
from onceflow.devkit.broker_config import HOST, Node, properties_text, server_properties
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.errors import ConfigError, DeadlineError, RetriableError
from onceflow.java.choice import find_java

START_TIMEOUT_S = 120.0
"""One broker needs 2 s here, three need 6 s; a loaded CI machine may need ten times that."""
FORMAT_TIMEOUT_S = 60
MAX_START_ATTEMPTS = 5
"""One fails only if another process took a port between our look and the broker's bind."""
PROBE_TIMEOUT_S = 0.5
"""One question for metadata; between two of them we look whether a broker has ended."""

_JVM_OPTIONS = (
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    # Ready a quarter sooner, for half the CPU time, than with the second compiler.
    *("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
)
_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to clients: one of them might take a broker's while it is down."""
_PORT_TAKEN = "Address already in use"


@dataclass(frozen=True)
class ClusterSettings:
    """A cluster that is written down and formatted, but not started."""

    folder: Path
    """Holds everything."""
    nodes: Sequence[Node]
    java: Sequence[str]
    """Program and options that run a class of Kafka."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of every broker, comma separated."""
        return ",".join(node.address for node in self.nodes)

    @property
    def commands(self) -> list[list[str]]:
        """One command for each broker."""
        return [[*self.java, "kafka.Kafka", str(node.properties_file)] for node in self.nodes]

    @property
    def logs(self) -> list[str]:
        """One log for each command."""
        return [str(node.log) for node in self.nodes]

    @property
    def supervisor_log(self) -> Path:
        """The log of the supervisor."""
        return self.folder / "supervisor.log"


class Processes(Protocol):
    """The processes of a cluster, each with the index of its broker."""

    def start(self) -> None:
        """Start them all. Does not wait until they are ready."""

    def exit_code(self, index: int) -> int | None:
        """How one of them ended, or None while it runs; negative for a signal."""

    def close(self) -> None:
        """End them all and wait until they are gone."""


AnyProcesses = TypeVar("AnyProcesses", bound=Processes)


def start_cluster(
    plan_cluster: Callable[[], ClusterSettings],
    supervise: Callable[[ClusterSettings], AnyProcesses],
    clock: Clock,
) -> tuple[ClusterSettings, AnyProcesses]:
    """Start brokers and wait until all of them answer.

    Args:
        plan_cluster: called again if a port was taken.
        supervise: makes the processes of a plan, without starting them.
        clock: to wait with.

    Raises:
        ConfigError: no Java, no jars, or a broker ended; quotes its log.
        DeadlineError: no answer in time. In both cases nothing is left running.
    """
    deadline = clock.within(START_TIMEOUT_S)
    for _ in range(MAX_START_ATTEMPTS):
        plan = plan_cluster()
        processes = supervise(plan)
        with ExitStack() as on_failure:
            on_failure.callback(processes.close)
            on_failure.enter_context(suppress(RetriableError))
            processes.start()
            wait_for_brokers(plan.nodes, processes, deadline)
            on_failure.pop_all()
            return plan, processes
    raise ConfigError(
        "no embedded broker could bind its ports",
        expected="free ports on this machine",
        found=f"another process was quicker in each of {MAX_START_ATTEMPTS} attempts",
    )


def write_settings(folder: Path, brokers: int, jars: str = "broker") -> ClusterSettings:
    """Write the settings of a cluster on free ports. Data that is in the folder is kept.

    Args:
        folder: for everything.
        brokers: 1, or 3 to lose one and keep a majority.
        jars: name of the set that holds Kafka.

    Raises:
        ConfigError: no Java, no jars, or no ports.
    """
    java = [str(find_java().executable), *_JVM_OPTIONS, "-cp", broker_class_path(jars)]
    ports = iter(free_ports(2 * brokers))
    nodes = [
        Node(number, next(ports), next(ports), folder / f"broker-{number}")
        for number in range(1, brokers + 1)
    ]
    for node in nodes:
        node.folder.mkdir(parents=True, exist_ok=True)
        node.log.unlink(missing_ok=True)
        node.properties_file.write_text(properties_text(server_properties(node, nodes)))
    return ClusterSettings(folder, nodes, java)


def format_storage(plan: ClusterSettings) -> None:
    """Prepare the folders of a cluster's data, unless they have some.

    Raises:
        ConfigError: a broker refuses its settings.
        DeadlineError: it takes too long.
    """
    # By the folder, so that data that was kept fits again.
    identity = uuid.uuid5(uuid.NAMESPACE_URL, plan.folder.as_uri())
    cluster_id = base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
    for node in plan.nodes:
        _format(plan.java, node, cluster_id)


def broker_class_path(jars: str = "broker") -> str:
    """The jars of a set, each verified, as Java takes them.

    Raises:
        ConfigError: some cannot be had.
    """
    return os.pathsep.join(str(jar) for jar in JarCache.of_user().ensure(jar_set(jars)))


def wait_for_brokers(nodes: Sequence[Node], processes: Processes, deadline: Deadline) -> None:
    """Wait until every broker answers, and knows all the others.

    Raises:
        ConfigError: one of them ended; quotes its log.
        RetriableError: one of them ended because its port was taken.
        DeadlineError: one did not answer in time.
    """
    for node in nodes:
        while not answers(node.address, len(nodes)):
            _require_alive(nodes, processes)
            deadline.check("an embedded broker does not answer", subject=node.address)


def answers(address: str, brokers: int) -> bool:
    """Whether the broker at an address answers within a moment, and knows that many live ones."""
    # A new client each time: once it has an answer it turns to any broker that it has learnt of.
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        # Refused connections are what we expect to see for the first second.
        "log_level": 0,
    }
    try:
        with AdminClient(settings) as admin:
            told = admin.list_topics(timeout=PROBE_TIMEOUT_S)
            # Another may have answered for one that is not there yet.
            is_its_own = str(told.orig_broker_name).startswith(f"{address}/")
            return is_its_own and len(told.brokers) >= brokers
    except KafkaException:
        return False


def _require_alive(nodes: Sequence[Node], processes: Processes) -> None:
    for index, node in enumerate(nodes):
        if processes.exit_code(index) is not None:
            log = node.log.read_text(errors="replace")
            kind = RetriableError if _PORT_TAKEN in log else ConfigError
            raise kind(
                "an embedded broker ended",
                subject=f"broker {node.node_id} at {node.address}",
                found=_complaint(log),
            )


def _format(java: Sequence[str], node: Node, cluster_id: str) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    command += [f"--cluster-id={cluster_id}", "--config", str(node.properties_file)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(
            "an embedded broker's storage was not formatted in time",
            subject=str(node.folder),
            expected=f"an answer within {FORMAT_TIMEOUT_S} s",
        ) from error
    if done.returncode != 0:
        raise ConfigError(
            "an embedded broker's storage could not be formatted",
            subject=str(node.properties_file),
            found=_complaint(done.stdout + done.stderr),
        )


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free now, all different.

    Raises:
        ConfigError: there are not so many.
    """
    # From anywhere, so that two processes that look at the same time seldom find the same.
    first = secrets.randbelow(len(_PORTS))
    found = [*islice(filter(_is_free, [*_PORTS[first:], *_PORTS[:first]]), count)]
    if len(found) < count:
        raise ConfigError(
            "no ports are free for brokers",
            expected=f"{count} between {_PORTS.start} and {_PORTS.stop}",
            found=str(len(found)),
        )
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a broker does: the connections of one that is gone do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def _complaint(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if "Exception" in line or " ERROR " in line]
    return " | ".join((told or lines)[-3:]) or "nothing in its log"

"""The stage of the demonstration: an input topic, a service process, two kinds of readers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow.clock import Clock
from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE, CrashPoint
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.errors import ConfigError, DeadlineError, require
from onceflow.java.kafka_jars import install, require_kafka_jars

INPUT_PARTITIONS = 4
PRODUCE_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 240.0
READ_TIMEOUT_S = 60.0
POLL_EVERY = 1_000
"""Records between two polls of the producer: serves its callbacks without slowing it down."""
_QUIET = {"log_level": 2}
"""What matters comes as an error; the clients' own log would tear the show."""


@dataclass(frozen=True)
class RunResult:
    """How a service process ended."""

    exit_code: int
    """Negative for a signal."""
    events: list[dict[str, object]]
    """The JSON lines that it printed."""
    errors: str
    """The text that it printed to standard error."""

    def of_kind(self, event: str) -> list[dict[str, object]]:
        """Events of one kind, oldest first."""
        return [line for line in self.events if line.get("event") == event]


def provide_kafka_client() -> None:
    """Fetch and install Kafka's client for Spark, unless it is there as locked.

    Raises:
        ConfigError: it cannot be fetched, or not be installed.
    """
    try:
        require_kafka_jars()
    except ConfigError:
        install(JarCache.of_user().ensure(jar_set("kafka")))


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic and wait for the answer."""
    with AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET}) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PRODUCE_TIMEOUT_S)


def produce(bootstrap_servers: str, topic: str, values: Iterable[bytes]) -> int:
    """Write values round robin, as any producer would; returns how many were acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            **_QUIET,
        }
    )
    count = 0
    for count, value in enumerate(values, start=1):
        while True:
            try:
                producer.produce(topic, value, partition=count % INPUT_PARTITIONS)
                break
            except BufferError:
                producer.poll(1.0)
        if count % POLL_EVERY == 0:
            producer.poll(0)
    require(producer.flush(PRODUCE_TIMEOUT_S) == 0, "the broker acknowledges every record")
    return count


_THROWN_AWAY = {
    "ONCEFLOW_EPHEMERAL_CHECKPOINTS__REASON": "a demonstration, thrown away at its end",
    "ONCEFLOW_EPHEMERAL_CHECKPOINTS__UNTIL": "9999-12-31",
}
"""Temporary files may be in memory, or in the layer of a container."""


def run_service(
    pipeline_file: Path, bootstrap_servers: str, crash: tuple[CrashPoint, int] | None, proof: Path
) -> RunResult:
    """Run `onceflow run --until caught-up` in a process of its own.

    At the arrival that `crash` names, it kills itself with SIGKILL. The crash point writes the file
    `proof` first, so that a fault that did not fire is noticed.
    """
    environment = {k: v for k, v in os.environ.items() if k != ENVIRONMENT_VARIABLE}
    environment |= _THROWN_AWAY
    if crash is not None:
        environment[ENVIRONMENT_VARIABLE] = f"{crash[0]}:kill:{crash[1]}"
        environment[PROOF_VARIABLE] = str(proof)
    command = [sys.executable, "-m", "onceflow.cli", "run", str(pipeline_file)]
    command += ["--bootstrap-servers", bootstrap_servers, "--until", "caught-up"]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DeadlineError("the service did not end", expected=f"{RUN_TIMEOUT_S:g} s") from error
    finally:
        # A killed driver leaves its JVM for a moment; no process may outlive the demonstration.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return RunResult(process.returncode, events, err)


def read_plainly(bootstrap_servers: str, topic: str, clock: Clock) -> list[bytes]:
    """Read a topic to its end with an ordinary read_committed consumer."""
    deadline = clock.within(READ_TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "plain-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            **_QUIET,
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        values: list[bytes] = []
        unfinished = set(partitions)
        while unfinished:
            deadline.check("the output could not be read to its end", subject=topic)
            messages = consumer.consume(1_000, 0.5)
            values += [m.value() or b"" for m in messages if m.error() is None]
            unfinished -= {m.partition() for m in messages if _is_end(m)}
        return values
    finally:
        consumer.close()


def _is_end(message: Message) -> bool:
    """Whether this is not a record but the news that a partition has no more."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001  public

"""Archives the broker's classes: `python -m tests.support.brokers.record_classes`.

For the Java that is in use. From the archive, a broker starts for half the CPU time. Takes twelve
seconds of processor, and 50 MB of the user's cache.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow.devkit.broker_start import broker_class_path
from onceflow.errors import DeadlineError
from onceflow.java.classes import record_with, recording_options, remove_old
from tests.support.brokers.children import (
    ChildProcessBroker,
    ChildProcessCluster,
    ClusterOptions,
    class_archive,
)
from tests.support.brokers.version import kafka_jars

_ANSWER_TIMEOUT_S = 60
_MAX_STOPS = 12
"""Times `GRACE_S`. Writing the archive takes 5 s on two idle cores."""
_MAX_ARCHIVES = 4
"""Of other Javas or jars; what is beyond is the oldest, and removed."""


def record(archive: Path) -> None:
    """Let a broker do a little of everything, and archive the classes that it loaded."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    # A JVM that uses an archive does not write one.
    archive.unlink(missing_ok=True)
    with TemporaryDirectory(dir=archive.parent) as folder:
        unfinished = Path(folder) / archive.name
        options = ClusterOptions(jvm_options=recording_options(unfinished))
        with ChildProcessCluster(options) as cluster:
            _use(cluster.bootstrap_servers)
            _end(cluster.brokers[0])
        unfinished.replace(archive)
    remove_old(archive, _MAX_ARCHIVES)


def _use(bootstrap_servers: str) -> None:
    """A topic, a transaction, and a consumer that commits."""
    name = f"classes-{uuid.uuid4().hex}"
    servers = {"bootstrap.servers": bootstrap_servers}
    with AdminClient({**servers}) as admin:
        admin.create_topics([NewTopic(name, 1)])[name].result(_ANSWER_TIMEOUT_S)
    # Quiet: the coordinator of a new broker may still be loading, which is expected.
    producer = Producer({**servers, "transactional.id": name, "log_level": 2})
    producer.init_transactions(_ANSWER_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"value")
    producer.commit_transaction(_ANSWER_TIMEOUT_S)
    consumer = Consumer({**servers, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    consumer.poll(_ANSWER_TIMEOUT_S)
    consumer.commit(asynchronous=False)
    consumer.close()


def _end(broker: ChildProcessBroker) -> None:
    """Let it end by itself, as it writes the archive only then."""
    for _ in range(_MAX_STOPS):
        with suppress(DeadlineError):
            broker.stop()
            return
    raise DeadlineError("the archive of the broker's classes was not written in time")


if __name__ == "__main__":
    record_with(lambda java: record(class_archive(java, broker_class_path(kafka_jars()))))

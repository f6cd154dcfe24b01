"""The example for programs of Kafka Streams leaves out what a topic has more than once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark

from onceflow.devkit.jars import JarCache, jar_set
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.repeats import AFTER, BEFORE, ONCE, ONCE_AFTER, PARTITIONS, values, write
from tests.support.outside.topics import create_topic

EXAMPLES = Path(__file__).parents[2] / "examples" / "readers"
PROGRAM = Path(__file__).parents[1] / "support" / "readers" / "RunOnce.java"
COMPILE = ("javac", "-Xlint:all,-processing,-classfile,-path", "-Werror", "--release", "17")
RUN_TIMEOUT_S = 120


def test_kafka_streams_reads_each_record_once_also_after_a_restart(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    numbered, once = topic("numbered"), topic("once")
    for name in (numbered, once):
        create_topic(broker.bootstrap_servers, name, PARTITIONS)
    classes, state, log = tmp_path / "classes", tmp_path / "state", tmp_path / "log"
    class_path = os.pathsep.join(map(str, [classes, *jars()]))
    sources = map(str, [EXAMPLES / "Once.java", PROGRAM])
    command = [*COMPILE, "-cp", class_path, "-d", str(classes), *sources]
    subprocess.run(command, check=True, timeout=RUN_TIMEOUT_S)

    def run(expected: dict[int, list[str]]) -> None:
        settings = [broker.bootstrap_servers, numbered, once, str(state)]
        with log.open("a") as told:
            process = subprocess.Popen(
                ["java", "-cp", class_path, "RunOnce", *settings],
                stdin=subprocess.PIPE,
                stdout=told,
                stderr=subprocess.STDOUT,
            )
        assert process.stdin is not None
        try:
            eventually(
                lambda: values(read_topic(broker.bootstrap_servers, once)),
                lambda found: found == expected or process.poll() is not None,
                timeout_s=RUN_TIMEOUT_S,
            )
        finally:
            process.stdin.close()
            assert process.wait(RUN_TIMEOUT_S) == 0, log.read_text()[-3000:]
        assert values(read_topic(broker.bootstrap_servers, once)) == expected

    write(broker.bootstrap_servers, numbered, BEFORE)
    run(ONCE)
    write(broker.bootstrap_servers, numbered, AFTER)
    run(ONCE_AFTER)


def jars() -> Sequence[Path]:
    """Kafka Streams, and what it needs besides, which PySpark has."""
    names = ("jackson", "rocksdbjni", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
    spark = Path(pyspark.__file__).parent / "jars"
    of_spark = [jar for name in names for jar in sorted(spark.glob(f"{name}-*.jar"))]
    return [*JarCache.of_user().ensure(jar_set("clients")), *of_spark]

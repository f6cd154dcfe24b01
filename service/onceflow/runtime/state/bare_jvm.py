"""A JVM with Spark's classes and no session: enough to read state, and there in a second."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from onceflow.java.choice import use_java
from onceflow.java.kafka_jars import class_path
from onceflow.runtime.spark import jvm
from onceflow.runtime.spark.home import sharing_options, use_spark_home
from onceflow.runtime.spark.launch import MAIN_SETTING
from onceflow.runtime.spark.session import LOGGING

ENDING_S = 10.0
_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
"""What Spark starts in the end, once it has prepared all that a session needs."""
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The better compiler and collector would cost it more than they save."""


@contextmanager
def bare_jvm(memory: str) -> Iterator[Any]:
    """Py4J's view of it, inside the block. No secret is on its command line.

    Calls take texts, numbers and Java's objects, no lists or maps of Python.

    Args:
        memory: its heap, such as `2g`.

    Raises:
        ConfigError: there is no Java, a jar of Kafka's client cannot be used, or Java does not
            start.
        RetriableError: it was ended while it started.
    """
    java = use_java()
    # Without the processes that plan sources.
    use_spark_home(is_local=False)
    options = f"-Dlog4j2.configurationFile={LOGGING} -Donceflow.log=text {_SHORT_LIVED}"
    conf = SparkConf(loadDefaults=False)
    conf.set(MAIN_SETTING, _MAIN)
    conf.set("spark.driver.memory", memory)
    # The archive of classes is for the same class path.
    conf.set("spark.driver.extraClassPath", class_path(java))
    conf.set("spark.driver.extraJavaOptions", f"{options} {sharing_options(java)}")
    try:
        gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    except (PySparkException, Py4JError, OSError) as error:
        raise jvm.start_error(error, "a JVM to read state", java.home) from error
    # Else the first argument of a call imports pandas, to see whether it is an array: 0.3 s.
    gateway._gateway_client.converters = None  # noqa: SLF001  no public way
    try:
        with ThreadPoolExecutor(1) as meanwhile:
            # Takes 0.3 s, as long as a caller needs for what comes before the first look-up.
            meanwhile.submit(gateway.jvm.org.rocksdb.RocksDB.loadLibrary)
            yield gateway.jvm
    finally:
        with suppress(*jvm.UNREACHABLE):
            gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(ENDING_S)
        except TimeoutExpired:
            gateway.proc.kill()

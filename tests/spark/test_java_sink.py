"""Compares what tasks write, in Java, with what Python writes: equal to the byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from onceflow.devkit.jars import JarCache, jar_set
from onceflow.java.compiled import compiled_jar, jars_of_spark
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.protocol.digest import digest_of
from onceflow.protocol.record import Flag, HeaderPacker
from onceflow_connectors.kafka.sink.partitioners import murmur2

PACKAGE = "onceflow.sink"
PAYLOADS = st.none() | st.binary(max_size=40)


@pytest.fixture(scope="module")
def sink(spark: SparkSession) -> Any:
    return jvm_of(spark).onceflow.sink


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.tuples(*(st.integers(0, 2**bits - 1) for bits in (32, 32, 32, 63, 8, 16))),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
def test_headers_are_those_of_python(
    sink: Any, fields: tuple[int, ...], sequence: int, is_last: bool
) -> None:
    names = ("pipeline_tag", "generation", "plan_tag", "batch_id", "mode", "lineage")
    python = HeaderPacker(**dict(zip(names, fields, strict=True)))
    java = sink.HeaderPacker(python.pack(0, 0))
    flag = Flag.LAST_OF_BATCH if is_last else 0
    assert bytes(java.pack(sequence, is_last)) == python.pack(flag, sequence)
    # Of the next record, which the one before does not change.
    assert bytes(java.pack(1, False)) == python.pack(0, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(PAYLOADS, PAYLOADS), max_size=5), st.integers(0, 3))
def test_digests_are_those_of_python(
    sink: Any, rows: Sequence[tuple[bytes | None, bytes | None]], partition: int
) -> None:
    java = sink.RowDigest()
    rows = [*rows, (b"k" * 900, b"v" * 5000), (None, b"")]
    for _ in range(2):  # it begins again at its end
        for key, value in rows:
            java.add(partition, key, value)
        assert bytes(java.end()).hex() == digest_of((partition, *row) for row in rows)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(PAYLOADS)
def test_keys_go_to_the_partitions_of_python(sink: Any, key: bytes | None) -> None:
    assert sink.Murmur2().call(key) == murmur2(key or b"") & 0x7FFFFFFF


def test_the_client_can_join_a_transaction(sink: Any) -> None:
    sink.ClientCheck.run()


def test_another_version_of_the_client_is_refused(spark: SparkSession) -> None:
    """By its version, before anything else."""
    jvm: Any = jvm_of(spark)
    jars = [*JarCache.of_user().ensure(jar_set("clients")), compiled_jar()]
    jars += jars_of_spark().glob("slf4j-api-*.jar")
    found = [jvm.java.io.File(str(jar)).toURI().toURL() for jar in jars]
    urls = jvm.java.lang.reflect.Array.newInstance(found[0].getClass(), len(found))
    for at, url in enumerate(found):
        jvm.java.lang.reflect.Array.set(urls, at, url)
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.ClassLoader.getPlatformClassLoader())
    check = jvm.java.lang.Class.forName(f"{PACKAGE}.ClientCheck", True, loader)
    with pytest.raises(Py4JJavaError, match=r"expected kafka-clients 4\.3\.1; found .* 3\.9\.2"):
        check.getMethod("run", None).invoke(None, None)

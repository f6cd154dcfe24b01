"""Settings without effect on the output: they decide how much memory and time it takes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.spark.session import one_call_site
from tests.support.spark_ports import answer_to_a_stranger, listening


@pytest.mark.parametrize(
    "option",
    [
        # A quarter of the 1 GB that the tests' driver has.
        "-Xms256m",
        "-Xmx1g",
        "-XX:+AlwaysPreTouch",
        "-XX:G1HeapRegionSize=4m",
        "-XX:MinHeapFreeRatio=10",
        "-XX:Tier4InvocationThreshold=500000",
    ],
)
def test_the_jvm_was_started_with(spark: SparkSession, option: str) -> None:
    management = jvm_of(spark).java.lang.management.ManagementFactory
    assert option in list(management.getRuntimeMXBean().getInputArguments())


def test_an_action_leaves_the_call_site_alone(spark: SparkSession) -> None:
    def call_site() -> object:
        return spark.sparkContext.getLocalProperty("callSite.short")

    with one_call_site(spark):
        before = call_site()
        spark.range(3).collect()
        assert before is not None
        assert call_site() == before
    spark.range(3).collect()
    assert call_site() is None


def test_nobody_else_reaches_a_port_of_spark(spark: SparkSession) -> None:
    context = spark.sparkContext
    rpc = int(context.getConf().get("spark.driver.port") or 0)
    blocks = jvm_of(spark).org.apache.spark.SparkEnv.get().blockManager().blockManagerId().port()
    found = listening()
    assert {ip for ip, _ in found} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert {rpc, blocks} <= {port for _, port in found}
    assert b"Sasl" in answer_to_a_stranger(rpc)
    assert b"Sasl" in answer_to_a_stranger(blocks)
    # Those who know the secret are let in: an answer comes over the same protocol.
    assert spark.range(10).repartition(2).count() == 10


def test_nobody_else_reaches_a_port_of_a_rehearsal() -> None:
    """A process of its own: a session that exists would be joined."""
    command = [sys.executable, "-m", "tests.support.spark_ports"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    told = done.stdout
    assert "0.0.0.0" not in told
    assert "'::'" not in told
    assert "127.0.0.1" in told
    assert "Sasl" in told

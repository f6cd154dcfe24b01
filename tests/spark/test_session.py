"""Settings that nobody would miss in the output: they decide how much memory and time it takes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onceflow.pipeline.plan import jvm_of
from onceflow.runtime.session import one_call_site


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

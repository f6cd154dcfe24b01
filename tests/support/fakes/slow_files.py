"""A file system for Spark's checkpoints that takes its time over each file: `slow:///folder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from onceflow.java.loader import class_loader
from onceflow.pipeline.plan.plan import jvm_of

DELAY_MS = 600
"""Also in SlowFiles.java."""
SOURCES = Path(__file__).with_name("java")


def use_slow_files(spark: SparkSession) -> None:
    """Make the scheme known to this JVM; Hadoop keeps the one instance for everybody who asks."""
    jvm: Any = jvm_of(spark)
    shared = spark.sparkContext._jsc.hadoopConfiguration()
    configuration = jvm.org.apache.hadoop.conf.Configuration(shared)
    configuration.setClassLoader(class_loader(jvm, SOURCES))
    configuration.set("fs.slow.impl", "onceflow.tests.SlowFiles")
    made = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("slow:///"), configuration)
    assert made.getClass().getSimpleName() == "SlowFiles"

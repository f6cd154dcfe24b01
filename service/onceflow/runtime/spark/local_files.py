"""Spark's files on a local disk, without what Hadoop does for each of them.

Where Hadoop's native library is missing, as in PySpark, its local file system sets the permissions
of every file that it creates by running `chmod`, and of the file's checksum too: some ten processes
in each batch. The class below does it by a call, and is otherwise Hadoop's own, checksums included.

Every stateful operator of every batch broadcasts Hadoop's configuration, two thirds of which are
defaults of YARN and MapReduce. They are not read here, so they are dropped.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from onceflow.errors import require
from onceflow.java.loader import class_loader
from onceflow.pipeline.plan.plan import jvm_of

_CLASS = "onceflow.QuickLocalFileSystem"


def use_quick_local_files(spark: SparkSession) -> None:
    """Let this JVM use it for `file:`. Executors in other JVMs keep Hadoop's own.

    Hadoop makes one instance for a scheme and hands it to everybody who asks, so it is enough that
    one who asks brings the class.
    """
    jvm: Any = jvm_of(spark)
    shared = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  no public way
    present = _local_files(jvm, shared)
    if _class_of(present) != _CLASS:
        present.close()  # which also makes Hadoop forget it
        present = _local_files(jvm, _bringing_ours(jvm, shared))
        found = _class_of(present)
        require(found == _CLASS, "Hadoop uses the file system of the settings", found=found)
    present.dropForeignDefaults(shared)


def _bringing_ours(jvm: Any, shared: Any) -> Any:
    """A configuration that finds our class."""
    configuration = jvm.org.apache.hadoop.conf.Configuration(shared)
    configuration.setClassLoader(class_loader(jvm))
    configuration.set("fs.file.impl", _CLASS)
    return configuration


def _local_files(jvm: Any, configuration: Any) -> Any:
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), configuration)


def _class_of(file_system: Any) -> str:
    name: str = file_system.getClass().getName()
    return name

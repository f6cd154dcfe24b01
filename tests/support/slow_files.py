"""A file system for Spark's checkpoints that takes its time over each file: `slow:///folder`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from onceflow.pipeline.java_code import load_classes
from onceflow.pipeline.plan import jvm_of

DELAY_MS = 600
_SOURCE = f"""
package onceflow.tests;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class SlowFiles extends RawLocalFileSystem {{
  public URI getUri() {{
    return URI.create("slow:///");
  }}

  public void setPermission(Path path, FsPermission wanted) {{
  }}

  public boolean rename(Path from, Path to) throws IOException {{
    try {{
      Thread.sleep({DELAY_MS}L);
    }} catch (InterruptedException error) {{
      throw new IOException(error);
    }}
    return super.rename(from, to);
  }}
}}
"""


def use_slow_files(spark: SparkSession) -> None:
    """Make the scheme known to this JVM; Hadoop keeps the one instance for everybody who asks."""
    jvm: Any = jvm_of(spark)
    shared = spark.sparkContext._jsc.hadoopConfiguration()
    configuration = jvm.org.apache.hadoop.conf.Configuration(shared)
    configuration.setClassLoader(load_classes(jvm, _SOURCE))
    configuration.set("fs.slow.impl", "onceflow.tests.SlowFiles")
    made = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("slow:///"), configuration)
    assert made.getClass().getSimpleName() == "SlowFiles"

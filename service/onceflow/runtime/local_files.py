"""Spark's files on a local disk, without what Hadoop does for each of them.

Where Hadoop's native library is missing, as in PySpark, its local file system sets the permissions
of every file that it creates by running `chmod`, and of the file's checksum too: some ten processes
in each batch. The class below does it by a call, and is otherwise Hadoop's own, checksums included.

Every stateful operator of every batch broadcasts Hadoop's configuration, two thirds of which are
defaults of YARN and MapReduce. Nobody reads them here, so they are dropped.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from onceflow.errors import require
from onceflow.pipeline.java_code import load_classes
from onceflow.pipeline.plan import jvm_of

_CLASS = "onceflow.QuickLocalFileSystem"
_SOURCE = """
package onceflow;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class QuickLocalFileSystem extends LocalFileSystem {
  public QuickLocalFileSystem() {
    super(new QuickRaw());
  }

  public void dropForeignDefaults(Configuration configuration) {
    List foreign = new ArrayList();
    for (Iterator entries = configuration.iterator(); entries.hasNext();) {
      String name = (String) ((Map.Entry) entries.next()).getKey();
      String[] sources = configuration.getPropertySources(name);
      String source = sources == null ? "" : sources[sources.length - 1];
      if (source.equals("yarn-default.xml") || source.equals("mapred-default.xml")) {
        foreign.add(name);
      }
    }
    for (int i = 0; i < foreign.size(); i++) {
      configuration.unset((String) foreign.get(i));
    }
  }

  public static class QuickRaw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission wanted) throws IOException {
      if (wanted.getStickyBit()) {  // which Java has no name for
        super.setPermission(path, wanted);
        return;
      }
      String text = wanted.getUserAction().SYMBOL + wanted.getGroupAction().SYMBOL
          + wanted.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(pathToFile(path).toPath(),
          PosixFilePermissions.fromString(text));
    }
  }
}
"""


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
        require(found == _CLASS, "Hadoop takes the file system that it is told", found=found)
    present.dropForeignDefaults(shared)


def _bringing_ours(jvm: Any, shared: Any) -> Any:
    """A configuration that finds our class."""
    configuration = jvm.org.apache.hadoop.conf.Configuration(shared)
    configuration.setClassLoader(load_classes(jvm, _SOURCE))
    configuration.set("fs.file.impl", _CLASS)
    return configuration


def _local_files(jvm: Any, configuration: Any) -> Any:
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), configuration)


def _class_of(file_system: Any) -> str:
    name: str = file_system.getClass().getName()
    return name

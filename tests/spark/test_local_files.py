"""Local files as Spark sees them: quick to create, and otherwise Hadoop's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.spark.local_files import use_quick_local_files


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Any:
    """Hadoop's file system for a local path, as Spark asks for it."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path(f"file://{tmp_path}")
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def write(spark: SparkSession, files: Any, path: Path, data: bytes) -> Any:
    at = jvm_of(spark).org.apache.hadoop.fs.Path(f"file://{path}")
    stream = files.create(at, True)
    stream.write(data)
    stream.close()
    return at


def test_a_session_uses_them(spark: SparkSession, files: Any) -> None:
    assert files.getClass().getName() == "onceflow.QuickLocalFileSystem"


def test_a_second_session_of_a_process_keeps_them(spark: SparkSession, files: Any) -> None:
    use_quick_local_files(spark)
    again = files.getWorkingDirectory().getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert again.hashCode() == files.hashCode()


def test_defaults_of_yarn_and_mapreduce_are_dropped(spark: SparkSession) -> None:
    """Each stateful operator of each batch broadcasts what is there."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    assert configuration.get("yarn.resourcemanager.hostname") is None
    assert configuration.get("mapreduce.map.memory.mb") is None
    assert configuration.get("hadoop.tmp.dir") is not None


@pytest.mark.parametrize("permissions", ["640", "755", "1777"])
def test_permissions_are_set(
    permissions: str, spark: SparkSession, files: Any, tmp_path: Path
) -> None:
    at = write(spark, files, tmp_path / "file", b"data")
    wanted = jvm_of(spark).org.apache.hadoop.fs.permission.FsPermission(permissions)
    files.setPermission(at, wanted)
    assert (tmp_path / "file").stat().st_mode & 0o7777 == int(permissions, 8)


def test_a_new_file_has_what_hadoops_umask_leaves(
    spark: SparkSession, files: Any, tmp_path: Path
) -> None:
    write(spark, files, tmp_path / "file", b"data")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_flipped_bit_is_noticed(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    at = write(spark, files, tmp_path / "file", b"data")
    (tmp_path / "file").write_bytes(b"dbta")
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        files.open(at).read()

"""The jars with which Spark's JVMs reach S3: a folder in the Python environment.

On the class path they come after Spark's own, so that an archive of Spark's classes still fits.
They are added as Spark documents it, by `SPARK_DIST_CLASSPATH`, so that executors and programs of
Spark itself have them, too. One of them is made here, of `ConditionalFiles.java`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from onceflow.errors import ConfigError
from onceflow.java.choice import Java
from onceflow.java.compiled import (
    FOR_S3,
    compile_to_jar,
    environment_folder,
    installed_at_once,
    jars_of_spark,
)

CLASS_PATH_VARIABLE = "SPARK_DIST_CLASSPATH"
FILE_MANAGER = "onceflow.ConditionalFiles"
COMMAND = "onceflow fetch s3"
"""Installs them."""
_OURS = "onceflow-conditional-files.jar"
_HADOOP = "hadoop-aws-*.jar"


def s3_folder() -> Path:
    """Where they are, for this Python environment and its Spark. May not exist."""
    return environment_folder() / f"s3-{version('pyspark')}"


def use_s3_jars() -> None:
    """Let Spark's programs that this process starts have them, if they are installed."""
    if s3_folder().is_dir():
        os.environ.setdefault(CLASS_PATH_VARIABLE, f"{s3_folder()}/*")


def require_s3_jars(location: str) -> None:
    """Go on only if they are installed.

    Args:
        location: which needs them.

    Raises:
        ConfigError: they are not.
    """
    if not s3_folder().is_dir() and CLASS_PATH_VARIABLE not in os.environ:
        raise ConfigError(
            "the jars for S3 are not installed",
            subject=location,
            expected=f"a folder {s3_folder()}",
            then=f"nothing was written; run `{COMMAND}` once in this Python environment",
        )


def install(jars: Sequence[Path], java: Java) -> Path:
    """Put them where Spark's JVMs find them, and compile our own.

    Args:
        jars: of the set `s3`, verified.
        java: to compile with.

    Returns:
        The folder, which is there as a whole or not at all.

    Raises:
        ConfigError: there is no PySpark, or its Hadoop is of another version; the folder cannot be
            written, or our class cannot be compiled.
    """
    spark, folder = jars_of_spark(), s3_folder()
    _check_version(jars, spark)
    with installed_at_once(folder, "the jars for S3") as target:
        for jar in jars:
            shutil.copyfile(jar, target / jar.name)
        compile_to_jar([FOR_S3], [spark, target], java, target / _OURS)
    return folder


def _check_version(jars: Sequence[Path], spark: Path) -> None:
    """Hadoop works with parts of one version only."""
    (ours,) = (jar.stem.rpartition("-")[2] for jar in jars if jar.match(_HADOOP))
    found = [jar.stem.rpartition("-")[2] for jar in spark.glob("hadoop-client-api-*.jar")]
    if found != [ours]:
        raise ConfigError(
            "the jars for S3 do not fit the installed Spark",
            expected=f"a PySpark with Hadoop {ours}",
            found=f"Hadoop {', '.join(found) or 'nowhere'} in PySpark {version('pyspark')}",
        )

"""Spark for commands that only look at a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onceflow.cli.options import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-AlwaysPreTouch"
"""For a JVM that ends in seconds: the better compiler and collector cost it more than they save."""


def has_spark() -> bool:
    """Whether PySpark is installed."""
    return find_spec("pyspark") is not None


@contextmanager
def analysis_session(command: str, config: Path | None) -> Iterator[SparkSession]:
    """A session under the settings of a real run, on one core of this machine.

    Raises:
        ConfigError: the settings are wrong, there is no Java, or Spark refuses to start.
        RetriableError: Spark has ended.
    """
    from onceflow.java.choice import use_java
    from onceflow.runtime import jvm
    from onceflow.runtime.session import SessionSettings, open_session
    from onceflow.runtime.spark_home import sharing_options

    spark = settings_of(config=config).spark.model_copy(update={"master": "local[1]"})
    options = f"{sharing_options(use_java())} {_SHORT_LIVED}"
    settings = SessionSettings(**spark.model_dump())
    session = open_session(command, settings, "", options)
    try:
        with jvm.losses_told():
            yield session
    finally:
        jvm.stop(session)

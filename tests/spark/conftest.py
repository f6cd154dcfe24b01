"""One local Spark for all tests of a module of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from onceflow.runtime.session import SessionSettings, open_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """With the settings of a run, on two cores. Other tests of this process end theirs."""
    settings = SessionSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2)
    session = open_session("tests", settings, checkpoint="")
    yield session
    session.stop()

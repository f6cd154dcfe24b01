"""One local Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from onceflow.runtime.session import SessionSettings, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """With the settings of a run, on two cores."""
    settings = SessionSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2)
    session = open_session("tests", settings, checkpoint="")
    yield session
    session.stop()

"""One local Spark for all tests of a module of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from onceflow.runtime.session import open_session
from tests.support.here import QUICK


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """With the settings of a run, on two cores. Other tests of this process end theirs."""
    session = open_session("tests", replace(QUICK, shuffle_partitions=2), checkpoint="")
    yield session
    session.stop()

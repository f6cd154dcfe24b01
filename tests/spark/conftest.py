"""One local Spark for all tests of a module of this folder, and a control API without any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.runtime.session import open_session
from tests.support.control_site import Callers, Site, answered, living
from tests.support.here import QUICK


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """With the settings of a run, on two cores. Other tests of this process end theirs."""
    session = open_session("tests", replace(QUICK, shuffle_partitions=2), checkpoint="")
    yield session
    session.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with living(Site(tmp_path)) as made:
        yield made


@pytest.fixture
def callers(site: Site) -> Iterator[Callers]:
    with answered(site) as made:
        yield made

"""One local Spark for all tests of a module of this folder, and a control API without any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.control_site import Callers, Site, answered, living
from tests.support.here import engine


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Of the Spark that runs of pipelines use, too, with a partition of state for each core."""
    session = engine().open_session("")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with living(Site(tmp_path)) as made:
        yield made


@pytest.fixture
def callers(site: Site) -> Iterator[Callers]:
    with answered(site) as made:
        yield made

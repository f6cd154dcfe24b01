"""One local Spark for all tests of a module of this folder, what it makes of a pipeline, and a
control API without any."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.analysis.analysis import Analysis, analyse
from onceflow.pipeline.file.rules import Rule
from tests.support.drivers.here import engine
from tests.support.fakes import log_connector
from tests.support.pipelines import COUNT_PER_MINUTE, NOW_MS, pipeline_text, write_pipeline
from tests.support.sites.control import Callers, Site, answered, living

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Spark as runs of pipelines use it, with a partition of state for each core."""
    session = engine().open_session("")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture
def plugin(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that Spark starts finds the log connector."""
    folder = tmp_path_factory.mktemp("plugin")
    log_connector.install(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    paths = os.pathsep.join([str(folder), str(ROOT)])
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", paths)


@pytest.fixture
def analysed(spark: SparkSession, tmp_path: Path) -> Callable[..., Analysis]:
    """Analyses a `pipeline_text` of the same arguments, with waivers at its end."""

    def analysed(query: str = COUNT_PER_MINUTE, waivers: str = "", **parts: str) -> Analysis:
        text = pipeline_text(query, **parts) + waivers
        return analyse(spark, write_pipeline(tmp_path, text), NOW_MS)

    return analysed


@pytest.fixture
def faults(analysed: Callable[..., Analysis]) -> Callable[..., tuple[Fault, ...]]:
    """The faults of a pipeline that must have some."""

    def faults(*arguments: str, **parts: str) -> tuple[Fault, ...]:
        with pytest.raises(ConfigError) as refused:
            analysed(*arguments, **parts)
        assert {fault.rule for fault in refused.value.faults} <= {*Rule}
        return refused.value.faults

    return faults


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file next to the pipeline for its function; no other test uses its name."""
    return tmp_path / f"transform_{tmp_path.name.replace('-', '_')}.py"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with living(Site(tmp_path)) as made:
        yield made


@pytest.fixture
def callers(site: Site) -> Iterator[Callers]:
    with answered(site) as made:
        yield made

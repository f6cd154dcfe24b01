"""A pipeline file is a query, and names: nothing in it runs, reads or writes anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis import analyse
from tests.support.pipelines import CLICKS, NOW_MS, pipeline_text, write_pipeline

WITNESS = "was-here"
SECRET = "not to be read"


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """What the queries below try to write."""
    return tmp_path / WITNESS


@pytest.mark.parametrize(
    "query",
    [
        "SELECT TRANSFORM(page) USING 'touch WITNESS' AS (page STRING) FROM clicks",
        "SELECT java_method('java.lang.Runtime', 'getRuntime') AS x FROM clicks",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x FROM clicks",
        "SELECT try_reflect('java.lang.System', 'getenv', 'HOME') AS x FROM clicks",
        "SELECT c.page FROM clicks c JOIN text.`FILE` t ON t.value = c.page",
        "SELECT c.page FROM clicks c JOIN csv.`FILE` t ON t._c0 = c.page",
        "SELECT c.page FROM clicks c WHERE c.page IN (SELECT value FROM text.`FILE`)",
        "SELECT page, (SELECT max(value) FROM text.`FILE`) AS x FROM clicks",
        "SELECT page FROM python_worker_logs()",
        "INSERT OVERWRITE DIRECTORY 'WITNESS' USING csv SELECT page FROM clicks",
        "CREATE TABLE x USING csv LOCATION 'WITNESS' AS SELECT 1 AS a",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.String'",
        "ADD JAR 'FILE'",
        "SET spark.sql.ansi.enabled=false",
        "SELECT page FROM clicks; CREATE TABLE x USING csv LOCATION 'WITNESS' AS SELECT 1 AS a",
        "EXPLAIN SELECT page FROM clicks",
        "BEGIN SELECT page FROM clicks; END",
        "EXECUTE IMMEDIATE 'SELECT page FROM clicks'",
    ],
)
def test_a_query_reaches_nothing_but_its_sources(
    spark: SparkSession, tmp_path: Path, witness: Path, query: str
) -> None:
    file = tmp_path / "file"
    file.write_text(SECRET)
    text = query.replace("WITNESS", str(witness)).replace("FILE", str(file))
    with pytest.raises(ConfigError) as refused:
        analyse(spark, write_pipeline(tmp_path, pipeline_text(text)), NOW_MS)
    assert not witness.exists()
    assert SECRET not in str(refused.value)
    assert all(fault.where == "query" for fault in refused.value.faults)


def test_markup_does_not_read_files(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing refuses it: Spark's parser follows no reference to a file."""
    file = tmp_path / "file"
    file.write_text(SECRET)
    markup = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{file}">]><a>&x;</a>'
    found = spark.sql(f"SELECT xpath_string('{markup}', 'a') AS x").first()
    assert found is not None
    assert SECRET not in str(found.x)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a b", "", ".", "..", "a\\nb", "a;b", "x" * 250, "$(id)"]
)
def test_names_of_topics_are_names(tmp_path: Path, name: str) -> None:
    quoted = f'"{name}"'
    sink = f"kafka: {{topic: {quoted}, partitions: 1}}"
    sources = CLICKS.replace("topics: [clicks]", f"topics: [{quoted}]")
    for text in (pipeline_text(sink=sink), pipeline_text(sources=sources)):
        with pytest.raises(ConfigError, match="topic"):
            write_pipeline(tmp_path, text)


@pytest.mark.parametrize("name", ["../x", "a/b", "a.b", "A", "", "a\\nb", "x" * 64, "-a"])
def test_names_of_pipelines_are_names(tmp_path: Path, name: str) -> None:
    text = pipeline_text().replace("name: views", f'name: "{name}"')
    with pytest.raises(ConfigError, match="name"):
        write_pipeline(tmp_path, text)

"""Parameters in queries and classes, as the analysis sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.analysis.analysis import Analysis, analyse
from onceflow.pipeline.query.parameters import register_parameters
from onceflow.processing.parameters import Parameter, Parameters
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

PARAMETERS = """\
parameters:
  topic: views-parameters
  values:
    limit: {type: "decimal(10,2)", default: 100}
    mode: {type: string, default: strict}
"""
GROUPED = "SELECT max(price * parameter('limit')) AS x FROM clicks GROUP BY window(at, '1 minute')"
CLASS = """\
from onceflow.processing import Processor

class Base(Processor):
    key = "user"
    output = "n decimal(10,2)"

    def floor(self):
        return self.parameters["floor"]

class Marks(Base):
    def on_records(self, key, records):
        for record in records:
            yield (self.parameters["limit"] + self.floor(),)
"""


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT parameter('limit') AS x FROM clicks", "decimal(10,2)"),
        ("SELECT 1L AS x FROM clicks WHERE price > PARAMETER('limit')", "bigint"),
        ("SELECT date_trunc(parameter('mode'), at) AS x FROM clicks", "timestamp"),
        (f"{GROUPED}, parameter('mode')", "double"),
    ],
)
def test_a_parameter_stands_where_a_column_may(
    analysed: Callable[..., Analysis], query: str, kind: str
) -> None:
    assert analysed(query, PARAMETERS).output["x"].dataType.simpleString() == kind


def test_sql_and_processors_have_the_same_value(spark: SparkSession) -> None:
    defaults = {
        "boolean": True,
        "bigint": -(2**63),
        "double": 1e300,
        "decimal(38,18)": "0.123456789012345678",
        "string": """it's \\n "${spark.app.name}" `%s` \U0001f600\n""",
        "date": "0099-12-31",
        "timestamp": "2026-03-01T01:00:00.000001+05:30",
    }
    declared = Parameters(
        {
            f"p{n}": Parameter(kind, json.dumps(value))
            for n, (kind, value) in enumerate(defaults.items())
        }
    )
    register_parameters(spark, declared)
    columns = ", ".join(f"parameter('{name}') AS {name}" for name in declared.declared)
    table = spark.sql(f"SELECT {columns}").toArrow()
    assert table.to_pylist() == [declared.values({})]


@pytest.mark.parametrize(
    ("called", "told"),
    [
        ("parameter('limt')", "no parameter is called `limt`"),
        ("parameter(page)", "parameter() without a name"),
        ("parameter()", "parameter() without a name"),
        ("parameter('limit', 1)", "parameter() without a name"),
        ("from_json(page, parameter('mode'))", "must be literals"),
        ("date_part(parameter('mode'), at)", "before the first batch"),
        ("named_struct(parameter('mode'), 1)", "before the first batch"),
        ("(SELECT x FROM VALUES (parameter('mode')) AS t(x))", "Failed to evaluate"),
        ("onceflow_parameter('limit')", "onceflow_parameter"),
    ],
)
def test_what_would_have_the_value_of_the_start_for_ever_is_refused(
    faults: Callable[..., tuple[Fault, ...]], called: str, told: str
) -> None:
    (fault,) = faults(f"SELECT {called} AS x FROM clicks", PARAMETERS)
    assert told in str(fault)


def test_the_nearest_name_is_suggested(faults: Callable[..., tuple[Fault, ...]]) -> None:
    (fault,) = faults("SELECT parameter('limt') AS x FROM clicks", PARAMETERS)
    assert "`limit`" in str(fault)


def test_a_pipeline_without_parameters_has_none(faults: Callable[..., tuple[Fault, ...]]) -> None:
    (fault,) = faults("SELECT parameter('limit') AS x FROM clicks")
    assert "no parameter is called `limit`" in str(fault)


def test_a_name_that_a_class_reads_must_be_declared(spark: SparkSession, module: Path) -> None:
    module.write_text(CLASS)
    step = f"process:\n  marks: {{class: {module.stem}:Marks, input: clicks}}\n"
    text = pipeline_text("SELECT n FROM marks") + step + PARAMETERS
    with pytest.raises(ConfigError) as refused:
        analyse(spark, write_pipeline(module.parent, text), NOW_MS)
    (fault,) = refused.value.faults
    assert "no parameter is called `floor`" in fault.what
    assert fault.where == "process.marks"


@pytest.mark.parametrize(("name", "told"), [("mode", ""), ("mood", "declares no parameter mood")])
def test_a_function_may_read_them(spark: SparkSession, module: Path, name: str, told: str) -> None:
    module.write_text(
        "from pyspark.sql import functions as F\n\n\n"
        f"""def f(clicks):\n    return clicks.select(F.expr("parameter('{name}')").alias("x"))\n"""
    )
    file = write_pipeline(module.parent, pipeline_text(transform=f"{module.stem}:f") + PARAMETERS)
    refused = ""
    try:
        analyse(spark, file, NOW_MS)
    except ConfigError as error:
        refused = str(error)
    assert told in refused
    assert bool(refused) == bool(told)

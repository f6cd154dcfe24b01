"""Steps of a pipeline that cannot run: refused by the analysis, with all faults in their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.analysis.analysis import analyse
from tests.support.pipelines import CLICKS, TIMELESS, pipeline_text, write_pipeline

NOW_MS = 1_772_323_200_000
COUNT = """\
from onceflow.processing import Processor, Value

class Count(Processor):
    key = "user"
    n = Value("bigint", default=0)
    output = "user string, n bigint, at timestamp"

    def on_records(self, key, records):
        for record in records:
            self.n.set(self.n.get() + 1)
            yield key, self.n.get(), record.at
"""
KEEPS = COUNT.replace("self.n.set(self", "self.seen = record; self.n.set(self")


def faults_of(spark: SparkSession, module: Path, step: str, sources: str = CLICKS) -> list[Fault]:
    text = pipeline_text("SELECT user, n FROM counts", sources=sources)
    block = f"process:\n  counts:\n    class: {module.stem}:Count\n{step}"
    file = write_pipeline(module.parent, text.replace("query:", f"{block}query:", 1))
    try:
        analyse(spark, file, NOW_MS)
    except ConfigError as error:
        return list(error.faults)
    return []


def test_a_step_over_a_source_is_taken(spark: SparkSession, module: Path) -> None:
    module.write_text(COUNT)
    assert faults_of(spark, module, "    input: clicks\n    event_time: at\n") == []


@pytest.mark.parametrize(
    ("step", "texts"),
    [
        ("    input: click\n", ["there is no view `click` to read"]),
        ("    input: SELECT user, page FROM clicks\n", ["the input has no event time"]),
        ("    input: clicks\n    event_time: n\n", ["`n` is not a timestamp of the output"]),
        (
            "    input: clicks\n    key: usr\n    order: [tim]\n",
            ["key: no column of the input is called `usr`", "order: no column"],
        ),
        ("    input: clicks\n    output: n integr\n", ["expected a type", "integr"]),
    ],
)
def test_a_step_that_cannot_run_tells_every_fault(
    spark: SparkSession, module: Path, step: str, texts: list[str]
) -> None:
    module.write_text(COUNT)
    found = faults_of(spark, module, step)
    assert {fault.where for fault in found} == {"process.counts"}
    told = "\n".join(map(str, found))
    assert [text for text in texts if text not in told] == []


def test_a_step_over_a_source_without_event_time_is_refused(
    spark: SparkSession, module: Path
) -> None:
    module.write_text(COUNT)
    (fault,) = faults_of(spark, module, "    input: timeless\n", TIMELESS)
    assert "the input has no event time" in fault.what


def test_a_function_is_not_a_step(spark: SparkSession, module: Path) -> None:
    module.write_text("def Count():\n    pass\n")
    (fault,) = faults_of(spark, module, "    input: clicks\n")
    assert "counts is not a processor" in fault.what


def test_an_attribute_that_is_kept_has_its_line_in_the_class(
    spark: SparkSession, module: Path
) -> None:
    module.write_text(KEEPS)
    (fault,) = faults_of(spark, module, "    input: clicks\n")
    assert (fault.rule, fault.file, fault.line) == ("ND-STATE", module.name, 10)

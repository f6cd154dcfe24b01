"""Every example of docs/determinism.md gets the verdict that stands above it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.rules import Rule
from tests.support.pipelines import CLICKS, NOW_MS, pipeline_text, write_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "determinism.md"
BLOCK = re.compile(
    r"^```(sql|python)\n(?:--|#) (refused: (?P<rule>[A-Z-]+)|fine)\n(.*?)^```$", re.M | re.S
)
EXAMPLES = [(m[1], m["rule"], m[4]) for m in BLOCK.finditer(PAGE.read_text())]
SOURCES = CLICKS.replace("_key BINARY", "_key BINARY, _partition INT, _offset BIGINT")
PRICES = """\
  prices:
    kafka: {topics: [prices]}
    schema: "page STRING, cents INT, set_at TIMESTAMP"
    event_time: set_at
    lateness: 10 seconds
"""
MODULE = "example_of_the_page"


@pytest.mark.parametrize(("language", "rule", "code"), EXAMPLES)
def test_an_example_gets_its_verdict(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    rule: str | None,
    code: str,
) -> None:
    sources = SOURCES + (PRICES if "prices p" in code else "")
    code = code.replace("{folder}", str(tmp_path))
    text = pipeline_text(code, sources=sources)
    if language == "python":
        (tmp_path / f"{MODULE}.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        text = pipeline_text("QUERY", sources=sources)
        text = text.replace("query: |\n  QUERY", f"transform: {MODULE}:transform")
    (tmp_path / "pages.json").write_text('{"page": "/"}')
    file = write_pipeline(tmp_path, text)
    if rule is None:
        assert analyse(spark, file, NOW_MS).warnings == ()
        return
    with pytest.raises(ConfigError) as refused:
        analyse(spark, file, NOW_MS)
    assert rule in {fault.rule for fault in refused.value.faults}


def test_every_rule_has_a_section() -> None:
    sections = set(re.findall(r"^### (ND-[A-Z]+)$", PAGE.read_text(), re.M))
    assert sections == {rule.value for rule in Rule if rule.name.startswith("ND_")}


def test_every_rule_has_both_examples() -> None:
    refused = {rule for _, rule, _ in EXAMPLES if rule}
    # A processor needs Spark's newest API around it; `tests/unit` has both.
    assert refused == {r.value for r in Rule if r.name.startswith("ND_")} - {Rule.ND_STATE}
    assert sum(rule is None for _, rule, _ in EXAMPLES) == len(refused)

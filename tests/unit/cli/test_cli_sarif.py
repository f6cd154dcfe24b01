"""The log has what SARIF 2.1.0 requires, and its rules are those of the documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from onceflow.cli.pipeline.sarif import SarifLevel, SarifResult, sarif_log
from onceflow.errors import Fault
from onceflow.pipeline.file.rules import SUMMARIES, Rule
from tests.support.documents.markdown import ROOT

UNKNOWN_KEY = Fault(
    "unknown key `latness`",
    where="sources.clicks.latness",
    line=12,
    suggestion="Did you mean `lateness`?",
    rule=Rule.UNKNOWN_KEY,
)
UNREADABLE = Fault("cannot read the pipeline file", rule=Rule.UNREADABLE_FILE)
ORDER = Fault("sum(price) depends on the order", line=3, rule=Rule.ND_AGG)


def run_of(*findings: SarifResult) -> dict[str, Any]:
    """The only run of the log, as a reader sees it."""
    log = json.loads(json.dumps(sarif_log(findings)))
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def result_of(path: str, fault: Fault, level: SarifLevel = SarifLevel.ERROR) -> dict[str, Any]:
    (result,) = run_of(SarifResult(Path(path), level, fault))["results"]
    assert isinstance(result, dict)
    return result


def test_the_log_names_its_version_and_its_tool() -> None:
    log = sarif_log([])

    assert log["version"] == "2.1.0"
    assert log["runs"][0]["tool"]["driver"]["name"] == "onceflow"
    assert log["runs"][0]["results"] == []  # left out, it would mean that nothing was looked at


def test_a_result_has_rule_level_message_and_place() -> None:
    assert result_of("pipelines/views.yaml", UNKNOWN_KEY) == {
        "ruleId": "unknown-key",
        "ruleIndex": [*SUMMARIES].index(Rule.UNKNOWN_KEY),
        "level": "error",
        "message": {"text": "unknown key `latness`. Did you mean `lateness`?"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "pipelines/views.yaml"},
                    "region": {"startLine": 12},
                },
                "logicalLocations": [{"fullyQualifiedName": "sources.clicks.latness"}],
            }
        ],
    }


def test_a_fault_without_a_line_is_about_the_whole_file() -> None:
    result = result_of("views.yaml", UNREADABLE, SarifLevel.WARNING)
    (location,) = result["locations"]

    assert result["level"] == "warning"
    assert location == {"physicalLocation": {"artifactLocation": {"uri": "views.yaml"}}}


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("my views/a.yaml", "my%20views/a.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("../größe.yaml", "../gr%C3%B6%C3%9Fe.yaml"),
        ("/data/a b.yaml", "file:///data/a%20b.yaml"),
    ],
)
def test_a_path_becomes_a_uri_reference(path: str, uri: str) -> None:
    (location,) = result_of(path, ORDER)["locations"]

    assert location["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert urlsplit(uri).scheme == ("file" if path.startswith("/") else "")


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_is_described_where_its_results_point(rule: Rule) -> None:
    run = run_of(SarifResult(Path("a.yaml"), SarifLevel.ERROR, Fault("wrong", rule=rule)))
    described = run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]

    assert described["id"] == run["results"][0]["ruleId"] == rule.value
    assert described["shortDescription"]["text"].endswith(".")


def test_the_documents_have_the_same_rules() -> None:
    text = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Rules")
    rows = re.findall(r"^\| `([A-Za-z-]+)` \| (.+?) \|", section, flags=re.MULTILINE)

    assert rows == [(rule.value, summary) for rule, summary in SUMMARIES.items()]

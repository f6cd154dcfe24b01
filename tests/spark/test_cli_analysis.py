"""`validate` with Spark, as a process that starts and ends a session of its own, and `explain`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.runtime.spark import jvm
from tests.support.drivers.service import QUICK
from tests.support.pipelines import QUERY_LINE, pipeline_text

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 250


def onceflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onceflow.cli", *arguments],
        env=os.environ | QUICK,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_the_examples_are_valid_and_a_query_over_an_unknown_column_is_not(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(pipeline_text("SELECT usr FROM clicks"))
    good = sorted(str(path) for path in EXAMPLES.glob("*/pipeline.yaml"))

    done = onceflow("validate", *good, str(bad), "-o", "json")

    assert done.returncode == 2, done.stderr
    *valid, refused = json.loads(done.stdout)
    assert [v["file"] for v in valid] == good
    assert all(v["valid"] and v["analysed"] and v["warnings"] == [] for v in valid)
    assert {v["guarantee"] for v in valid} == {"exactly once from the source to the output topic"}
    assert refused["faults"] == [
        {
            "what": "unknown column `usr`",
            "where": "query",
            "line": QUERY_LINE,
            "suggestion": "Did you mean `user`?",
            "rule": "invalid-query",
        }
    ]


@pytest.mark.usefixtures("spark")
def test_the_picture_tells_what_the_analysis_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # The command joins the Spark of this process, which others go on with.
    monkeypatch.setattr(jvm, "stop", lambda _: None)
    file = str(EXAMPLES / "card-fraud" / "pipeline.yaml")
    explain = ["explain", file, "-o", "json", "--keys", "1000000"]
    done = CliRunner(env=QUICK).invoke(build_app(), explain)

    assert done.exit_code == 0, getattr(done.exception, "faults", done.output)
    found = json.loads(done.stdout)
    assert found["analysed"]
    language, reads, step, result, state, forecast = found["query"]["facts"]
    assert (language, reads) == (
        "Spark SQL",
        "reads payments: card, shop, amount, at, _offset, _partition, _topic",
    )
    assert step == "step rules: card_rules:CardRules for each card, watermark"
    assert result == "gives card string, rule string, shops int, at timestamp"
    assert state == "keeps state between batches"
    assert forecast.startswith("state of rules: a row for each card")
    assert "1,000,000 rows take" in forecast

"""`transforms: false` keeps each command from calling the Python of a pipeline file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from tests.support.pipelines import pipeline_text

pytest.importorskip("pyspark")

MODULE = "transform_that_must_not_run"


@pytest.mark.parametrize(
    "command",
    [
        ["validate", "pipeline.yaml"],
        ["explain", "pipeline.yaml"],
        ["run", "pipeline.yaml", "--until", "caught-up"],
        ["ledger", "verify", "pipeline.yaml", "--batch", "0"],
        ["ledger", "rebuild", "pipeline.yaml", "--reason", "a test"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_command_calls_python_that_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    text = pipeline_text("QUERY").replace("query: |\n  QUERY", f"transform: {MODULE}:f")
    Path("pipeline.yaml").write_text(text)
    Path(f"{MODULE}.py").write_text("def f(clicks):\n    return clicks\n")
    Path("onceflow.yaml").write_text("bootstrap_servers: 127.0.0.1:1\ntransforms: false\n")

    done = CliRunner().invoke(build_app(), command)

    told = f"{done.stdout}{done.exception}"
    assert done.exit_code != 0
    assert "pipeline files may not bring Python code here" in told
    assert MODULE not in sys.modules

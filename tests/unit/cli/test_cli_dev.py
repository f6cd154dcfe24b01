"""`dev` where nothing runs; brokers that do are started by tests of the devkit."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app


@pytest.mark.parametrize(
    ("arguments", "exit_code", "shown"),
    [
        (["status"], 0, "not running\n"),
        (["status", "-o", "json"], 0, '{"running": false}\n'),
        (["down"], 0, "nothing was running\n"),
        (["up", "--brokers", "0"], 2, ""),
        (["up", "--brokers", "4"], 2, ""),
    ],
)
def test_where_nothing_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    exit_code: int,
    shown: str,
) -> None:
    monkeypatch.setenv("ONCEFLOW_CACHE", str(tmp_path))
    done = CliRunner().invoke(build_app(), ["dev", *arguments])
    assert (done.exit_code, done.stdout) == (exit_code, shown)

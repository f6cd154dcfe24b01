"""`dev` where nothing runs; brokers that do are started by tests of the devkit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEFLOW_CACHE", str(tmp_path))


def test_nothing_runs_before_it_is_started() -> None:
    as_text = CliRunner().invoke(build_app(), ["dev", "status"])
    as_json = CliRunner().invoke(build_app(), ["dev", "status", "-o", "json"])

    assert as_text.stdout == "not running\n"
    assert json.loads(as_json.stdout) == {"running": False}


def test_stopping_what_does_not_run_is_no_error() -> None:
    done = CliRunner().invoke(build_app(), ["dev", "down"])

    assert (done.exit_code, done.stdout) == (0, "nothing was running\n")


@pytest.mark.parametrize("count", ["0", "4"])
def test_a_cluster_has_one_to_three_brokers(count: str) -> None:
    assert CliRunner().invoke(build_app(), ["dev", "up", "--brokers", count]).exit_code == 2

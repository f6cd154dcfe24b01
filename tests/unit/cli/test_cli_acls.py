"""`onceflow acls`: what is listed, and what is refused before any broker is asked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError
from tests.support.pipelines import pipeline_text, write_pipeline

NAME = "a-pipeline-whose-name-is-as-long-as-a-name-of-one-may-ever-be-x"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_pipeline(tmp_path, pipeline_text().replace("name: views", f"name: {NAME}")).path


def acls(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["acls", str(file), *arguments])


def test_names_stay_whole_on_a_narrow_terminal(file: Path) -> None:
    told = acls(file).output
    assert f"onceflow.ledger.{NAME} " in told
    assert f"onceflow.{NAME}.* " in told
    assert "describe_configs" in told


def test_on_a_terminal_reasons_wrap_within_its_width(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, pipeline_text()).path
    told = CliRunner().invoke(
        build_app(),
        ["acls", str(file)],
        env={"COLUMNS": "80", "TTY_COMPATIBLE": "1", "NO_COLOR": "1", "TERM": "dumb"},
    )
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in told.output.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any("onceflow.ledger.views " in line for line in lines)


def test_programs_get_an_object_for_each_right(file: Path) -> None:
    told = acls(file, "--for", "consume:readers", "--output", "json").output
    rights = [json.loads(line) for line in told.splitlines()]
    assert [(r["resource"], r["name"], r["operation"]) for r in rights] == [
        ("topic", "views", "read"),
        ("group", "readers", "read"),
    ]


def test_the_topic_of_parameters_is_read_by_runs_and_written_by_those_who_set_them(
    tmp_path: Path,
) -> None:
    block = "parameters: {topic: changes, values: {limit: {type: int, default: 1}}}\n"
    file = write_pipeline(tmp_path, pipeline_text() + block).path

    def of_topic(*tasks: str) -> list[str]:
        wanted = [word for task in tasks for word in ("--for", task)]
        rights = map(json.loads, acls(file, *wanted, "--output", "json").output.splitlines())
        return [each["operation"] for each in rights if each["name"] == "changes"]

    assert of_topic("run") == ["read", "describe_configs"]
    assert of_topic("create") == ["create"]
    assert of_topic("set") == ["write", "describe_configs"]
    assert of_topic("verify", "resend", "consume:readers") == []


@pytest.mark.parametrize(
    "arguments", [("--for", "consume"), ("--for", "run:x"), ("--for", "fly"), ("--grant", "jane")]
)
def test_what_makes_no_sense_is_refused(file: Path, arguments: tuple[str, str]) -> None:
    assert isinstance(acls(file, *arguments).exception, ConfigError)

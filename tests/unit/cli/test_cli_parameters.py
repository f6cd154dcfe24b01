"""`onceflow parameters`: what is refused before any broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError
from tests.support.pipelines import pipeline_text, write_pipeline

PARAMETERS = """\
parameters:
  topic: changes
  values:
    limit: {type: "decimal(10,2)", default: 100}
    mode: {type: string, default: strict}
"""


def refusal(folder: Path, *arguments: str, parameters: str = PARAMETERS) -> str:
    file = write_pipeline(folder, pipeline_text() + parameters).path
    command, *rest = arguments
    told = CliRunner().invoke(build_app(), ["parameters", command, str(file), *rest])
    assert isinstance(told.exception, ConfigError), told.output
    return str(told.exception)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "limt", "5"), "Did you mean `limit`"),
        (("unset", "limt"), "Did you mean `limit`"),
        (("get", "limt"), "Did you mean `limit`"),
        (("set", "limit", "many"), "limit: expected JSON of decimal(10,2), found many"),
        (("set", "limit", "1.234"), "limit: expected decimal(10,2)"),
        (("set", "limit", "null"), "limit: expected decimal(10,2), found null"),
        (("set", "mode", "x" * 5000), "mode: expected at most 4096 bytes, found 5000"),
    ],
)
def test_what_cannot_be_a_value_is_not_sent(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    assert told in refusal(tmp_path, *arguments)


def test_a_pipeline_without_parameters_has_none_to_set(tmp_path: Path) -> None:
    told = refusal(tmp_path, "set", "limit", "5", parameters="")
    assert "the pipeline has no parameters" in told

"""`init` writes a pipeline that is valid, and never over anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.cli.pipeline.init import init
from onceflow.errors import ConfigError
from onceflow.pipeline.file.loader import load_pipeline


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_pipeline_is_valid_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    init("page-views")

    pipeline = load_pipeline(Path("page-views/pipeline.yaml")).pipeline
    assert (pipeline.name, pipeline.sink.kafka.topic) == ("page-views", "page-views")
    assert {file.name for file in Path("page-views").iterdir()} == {
        "pipeline.yaml",
        "clicks.jsonl",
        "test_pipeline.py",
    }
    assert "onceflow run page-views/pipeline.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "why"), [("taken", "File exists"), ("Page_Views", "unusable pipeline name")]
)
def test_a_name_that_is_taken_or_that_kafka_cannot_have_is_refused(name: str, why: str) -> None:
    Path("taken").mkdir()

    with pytest.raises(ConfigError, match=why):
        init(name)

    assert [*Path().rglob("*")] == [Path("taken")]

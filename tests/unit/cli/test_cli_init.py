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


def test_nothing_is_written_over() -> None:
    Path("taken").mkdir()

    with pytest.raises(ConfigError, match="File exists"):
        init("taken")

    assert list(Path("taken").iterdir()) == []


def test_a_name_that_kafka_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="unusable pipeline name"):
        init("Page_Views")

    assert list(Path().iterdir()) == []

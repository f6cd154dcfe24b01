"""The code on the reference page does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.pipeline.file.loader import load_pipeline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipeline.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_first_file_on_the_page_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(blocks("yaml")[0])

    assert load_pipeline(path).pipeline.name == "page-views"


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_python_on_the_page_runs(
    spark: SparkSession, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    exec(compile(code, "docs/pipeline.md", "exec"), {})

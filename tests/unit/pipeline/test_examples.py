"""The examples' data and expected output are what their own scripts make."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from onceflow.pipeline.file.loader import load_pipeline

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = sorted(file.parent.name for file in EXAMPLES.glob("*/pipeline.yaml"))

TESTS = sorted(EXAMPLES.glob("*/test_*.py"))


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.glob("*.jsonl")}


def test_all_are_found() -> None:
    assert " ".join(NAMES) == (
        "card-fraud funnel inventory named-trades page-views running-totals sensors sessions"
        " trades word-count"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_data_is_generated(name: str, tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / name / "generate.py"))["main"](tmp_path)

    assert contents(tmp_path) == contents(EXAMPLES / name / "data") != {}


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_output_is_what_the_oracle_says(name: str, tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLES / name / "oracle.py"))["main"]

    main(EXAMPLES / name / "data", tmp_path)

    assert contents(tmp_path) == contents(EXAMPLES / name / "expected") != {}


@pytest.mark.parametrize("name", NAMES)
def test_data_and_expected_output_are_of_the_pipelines_topics(name: str) -> None:
    pipeline = load_pipeline(EXAMPLES / name / "pipeline.yaml").pipeline
    inputs = set(pipeline.named_inputs)

    assert contents(EXAMPLES / name / "data").keys() == {f"{topic}.jsonl" for topic in inputs}
    expected = contents(EXAMPLES / name / "expected")
    assert expected.keys() == {f"{pipeline.sink.kafka.topic}.jsonl"}


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_an_example_passes_its_own_tests(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    tests = {n: each for n, each in runpy.run_path(str(file)).items() if n.startswith("test_")}
    assert tests
    for test in tests.values():
        test()

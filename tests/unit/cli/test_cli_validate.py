"""`validate` and `explain` on files alone, as people and programs see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.cli.pipeline.validate import FileVerdict, show
from onceflow.pipeline.analysis.explain import readers_of
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.schema import json_schema
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.guarantee import Determinism, Reading, State
from tests.support.pipelines import pipeline_text

# Wherever tests run, in a container or on a disk in memory: this place lasts.
GOOD = pipeline_text() + "checkpoint: s3a://bucket/views\n"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """In a folder with a good and a bad file."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(pipeline_text().replace("lateness", "latness"))
    return CliRunner()


def test_a_faulty_file_is_refused_with_every_fault(cli: CliRunner) -> None:
    done = cli.invoke(build_app(), ["validate", "bad.yaml"])

    assert done.exit_code == 2
    assert done.stdout.splitlines()[0] == "bad.yaml: 2 faults"
    assert "unknown key `latness`. Did you mean `lateness`?" in done.stdout


def test_programs_get_every_field_of_a_fault(cli: CliRunner) -> None:
    done = cli.invoke(build_app(), ["validate", "bad.yaml", "--output", "json"])

    (verdict,) = json.loads(done.stdout)
    unknown: dict[str, Any] = verdict["faults"][1]
    assert (verdict["file"], verdict["valid"], verdict["guarantee"]) == ("bad.yaml", False, None)
    assert unknown == {
        "what": "unknown key `latness`",
        "where": "sources.clicks.latness",
        "line": 12,
        "suggestion": "Did you mean `lateness`?",
        "rule": "unknown-key",
    }


def test_reviewers_get_every_fault_at_its_line(cli: CliRunner) -> None:
    command = ["validate", "bad.yaml", "good.yaml", "--file-only", "-o", "sarif"]
    done = cli.invoke(build_app(), command)

    (run,) = json.loads(done.stdout)["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert done.exit_code == 2
    assert [result["ruleId"] for result in run["results"]] == ["wrong-value", "unknown-key"]
    assert {place["artifactLocation"]["uri"] for place in places} == {"bad.yaml"}
    assert places[1]["region"] == {"startLine": 12}


def test_files_are_told_in_the_order_in_which_they_were_given(cli: CliRunner) -> None:
    done = cli.invoke(
        build_app(), ["validate", "good.yaml", "bad.yaml", "x.yaml", "--file-only", "-o", "json"]
    )

    verdicts = json.loads(done.stdout)
    assert [(v["file"], v["valid"]) for v in verdicts] == [
        ("good.yaml", True),
        ("bad.yaml", False),
        ("x.yaml", False),
    ]
    assert done.exit_code == 2


def test_a_file_that_was_not_analysed_is_not_called_more_than_it_is(cli: CliRunner) -> None:
    command = ["validate", "good.yaml", "--file-only"]
    text = cli.invoke(build_app(), command)
    (verdict,) = json.loads(cli.invoke(build_app(), [*command, "-o", "json"]).stdout)

    assert text.exit_code == 0
    assert "its query was not analysed" in text.stdout
    assert (verdict["analysed"], verdict["guarantee"]) == (False, None)


def test_the_schema_is_printed_on_request(cli: CliRunner) -> None:
    assert json.loads(cli.invoke(build_app(), ["validate", "--schema"]).stdout) == json_schema(
        Pipeline, FileKind.PIPELINE
    )


def test_the_picture_shows_every_station_and_reader(cli: CliRunner) -> None:
    done = cli.invoke(build_app(), ["explain", "good.yaml", "--file-only"])

    assert done.exit_code == 0
    for part in (
        "─ clicks ─",
        "─ query ─",
        "─ topic views ─",
        "every batch once, all partitions together",
        "onceflow.ledger.views",
        "read_uncommitted  at least once",
    ):
        assert part in done.stdout
    done = cli.invoke(build_app(), ["explain", "good.yaml", "--file-only", "-o", "json"])
    found = json.loads(done.stdout)
    assert (found["pipeline"], found["analysed"]) == ("views", False)
    assert found["names"]["group"] == "onceflow.views"


def test_the_picture_says_why_not_more_and_how_to_fix_it(cli: CliRunner) -> None:
    text = GOOD.replace("name: views", "name: views\ndelivery: at_least_once")
    Path("least.yaml").write_text(text)
    done = cli.invoke(build_app(), ["explain", "least.yaml", "--file-only"])

    told = " ".join(done.stdout.split())
    assert "(delivery: at_least_once)" in told
    assert "this reader does not" in told
    assert "Read with Onceflow's consumer" in told


def test_a_weaker_promise_is_told_for_every_reader(capsys: pytest.CaptureFixture[str]) -> None:
    for delivery, lines in ((Delivery.EXACTLY_ONCE, 1), (Delivery.AT_MOST_ONCE, 4)):
        readers = readers_of(delivery, Determinism.HOLDS, State.DURABLE)
        verdict = FileVerdict(Path("p.yaml"), is_analysed=True, readers=readers)
        show(verdict)
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) == lines
        assert f"valid: {delivery.value.replace('_', ' ')} from the source" in shown
        told = verdict.to_json()
        assert told["guarantee"] == str(verdict.guarantee)
        assert [r["reading"] for r in told["readers"]] == [r.value for r in Reading]
        fixes = {w["fix"] for r in told["readers"] for w in r["guarantee"]["reasons"]}
        assert all(fix.endswith(".") for fix in fixes)
        assert ("Ask for `delivery: exactly_once`." in shown) == (lines > 1)

"""The gateway file: what is accepted, and every fault with its line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError
from onceflow.gateway.loader import load_gateway
from onceflow.gateway.model import Gateway
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.schema import json_schema, reference_table
from tests.support.documents.markdown import ROOT

PUBLISHED = ROOT / "docs" / "gateway.schema.json"
GOOD = """\
apiVersion: onceflow/v1
kind: gateway
name: shop
topics:
  page-views:
    schema: "page STRING NOT NULL, views BIGINT"
    key: page
    writers: [web]
  notes: {}
remember: {for: 2 hours, at_most: 50000, slots: 2}
limits: {body: 2 MiB, records: 500, in_flight: 8 MiB, answer_within: 5 seconds}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "gateway.yaml"
    file.write_text(text)
    return file


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_gateway(written(folder, text))
    return [str(fault) for fault in refused.value.faults]


def test_what_the_file_says_is_what_the_model_holds(tmp_path: Path) -> None:
    gateway = load_gateway(written(tmp_path, GOOD))
    views, notes = gateway.topics["page-views"], gateway.topics["notes"]
    assert [*views.columns.by_name] == ["page", "views"]
    assert (views.key, views.writers, notes.writers) == ("page", ("web",), None)
    assert (gateway.remember.for_ms, gateway.remember.slots) == (7_200_000, 2)
    assert (gateway.limits.body_bytes, gateway.limits.answer_within_ms) == (2 * 2**20, 5_000)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("key: page", "key: user", "line 7, topics.page-views.key: not a column; expected one of"),
        ("BIGINT", "BIG", "line 6, topics.page-views.schema:"),
        ("key: page", "key: views2", "line 7, topics.page-views.key: not a column"),
        ("views BIGINT", "views DOUBLE", ""),
        ("page STRING", "page DOUBLE", "line 7, topics.page-views.key: double cannot be a key"),
        ("  notes: {}", "  notes: {key: n}", "line 9, topics.notes.key: a key without `schema`"),
        ("  notes: {}", "  onceflow.x: {}", "line 9, topics.onceflow.x: topics that begin"),
        ("  notes: {}", "  notes: {format: avro}", "`avro` is not yet supported"),
        ("slots: 2", "slots: 0", "line 10, remember.slots:"),
        ("in_flight: 8 MiB", "in_flight: 8 KiB", ""),
        ("writers: [web]", "writers: []", "line 8, topics.page-views.writers:"),
        ("name: shop", "name: Shop", "line 3, name: unusable pipeline name"),
        ("limits:", "limit:", "line 11, limit:"),
    ],
)
def test_a_fault_has_its_line(tmp_path: Path, old: str, new: str, fault: str) -> None:
    text = GOOD.replace(old, new, 1)
    if not fault:
        load_gateway(written(tmp_path, text))
        return
    assert fault in "\n".join(faults_of(tmp_path, text))


def test_the_promise_is_printed_with_its_conditions(tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), ["validate", str(written(tmp_path, GOOD))])
    assert done.exit_code == 0
    assert "valid: exactly once for posts with `Idempotency-Key`" in done.stdout
    assert "a post without `Idempotency-Key` that is sent again is written again" in done.stdout


def test_explain_shows_topics_and_memory(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["explain", file])
    assert done.exit_code == 0
    for part in ("gateway shop", "topic page-views", "key: page", "remembered for 2 h"):
        assert part in done.stdout
    found = json.loads(CliRunner().invoke(build_app(), ["explain", file, "-o", "json"]).stdout)
    assert (found["guarantee"], found["slots"]) == ("exactly_once", 2)


def test_it_has_nothing_to_catch_up_with(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["run", file, "--until", "caught-up"])
    assert "nothing to catch up with" in str(done.exception)


def test_the_published_schema_is_current() -> None:
    command = "onceflow validate --schema --kind gateway > docs/gateway.schema.json"
    assert json.loads(PUBLISHED.read_text()) == json_schema(Gateway, FileKind.GATEWAY), command
    validator = jsonschema.Draft202012Validator(json_schema(Gateway, FileKind.GATEWAY))
    assert [*validator.iter_errors({**yaml.safe_load(GOOD), "limit": 3})]


def test_the_page_holds_the_current_table() -> None:
    table = reference_table(Gateway)
    assert table in (ROOT / "docs" / "gateway.md").read_text(), table

"""The published JSON Schema and the reference page say what the models say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.schema import json_schema, reference_table
from onceflow.pipeline.text.yaml_text import parse_yaml
from onceflow.settings import Settings
from tests.support.pipelines import pipeline_text

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "pipeline.schema.json"


def test_the_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == json_schema(Pipeline, FileKind.PIPELINE), (
        "onceflow validate --schema > docs/pipeline.schema.json"
    )


@pytest.mark.parametrize("model", [Pipeline, Settings])
def test_the_reference_page_holds_the_current_table(model: type[BaseModel]) -> None:
    table = reference_table(model)

    assert table in (ROOT / "docs" / "pipeline.md").read_text(), table


def accepts(text: str) -> bool:
    data: Any = parse_yaml(text).data
    validator = jsonschema.Draft202012Validator(json_schema(Pipeline, FileKind.PIPELINE))
    return bool(validator.is_valid(data))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(Pipeline, FileKind.PIPELINE))


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*/pipeline.yaml")), ids=str)
def test_the_schema_accepts_the_examples(example: Path) -> None:
    assert accepts(example.read_text())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lateness:", "latness:"),
        ("10 seconds", "10"),
        ("name: views", "name: Views"),
        ("query: |", "transform: a:b\nquery: |"),
        ("partitions: 1", "partitions: '1'"),
        ("name: views", "name: views\ndead_letter: {topic: x, policy: fail}"),
        ("[clicks]", "[clicks], starting: now"),
    ],
)
def test_the_schema_refuses_what_the_model_refuses(old: str, new: str) -> None:
    assert old in pipeline_text()
    assert not accepts(pipeline_text().replace(old, new, 1))


def test_every_key_is_described() -> None:
    schema = json_schema(Pipeline, FileKind.PIPELINE)
    blocks = [schema, *schema["$defs"].values()]
    bare = [
        name
        for block in blocks
        for name, key in block["properties"].items()
        if not key.get("description")
    ]

    assert bare == []

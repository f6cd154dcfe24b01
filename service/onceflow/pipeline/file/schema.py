"""The JSON Schema of files, and the tables of the reference pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.text.keys import ANY_ENTRY, ANY_NAME, Key, KeyIndex

_TYPES: Mapping[str, str] = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "array": "list",
    "object": "mapping",
    "boolean": "true or false",
}


def json_schema(model: type[BaseModel], kind: FileKind) -> dict[str, Any]:
    """The schema that editors complete and check files of a kind with."""
    schema = model.model_json_schema(by_alias=True)
    # Pydantic titles everything with its Python name, which no file has.
    _drop_titles(schema)
    return schema | {"title": f"Onceflow {kind}"}


def reference_table(model: type[BaseModel]) -> str:
    """Every key of a model with its type, default and meaning, as a Markdown table."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    rows += (_row(key) for key in KeyIndex.of_model(model) if "description" in key.schema)
    return "\n".join(rows) + "\n"


def _row(key: Key) -> str:
    any_name = "<name>" if key.path[0] == "parameters" else "<view>"
    name = ".".join(any_name if part == ANY_NAME else part for part in key.path)
    name = name.replace(f".{ANY_ENTRY}", ANY_ENTRY)
    return f"| `{name}` | {_type(key.schema)} | {_default(key)} | {key.schema['description']} |"


def _default(key: Key) -> str:
    if key.is_required:
        return "**required**"
    default = key.schema.get("default")
    return "" if default is None or isinstance(default, dict | list) else f"`{default}`"


def _type(schema: Mapping[str, Any]) -> str:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(_type(each) for each in choices if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    return _TYPES[schema.get("type", "object")]


def _drop_titles(node: object) -> None:
    for child in _children(node):
        if isinstance(child, dict) and isinstance(child.get("title"), str):
            del child["title"]
        _drop_titles(child)


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node

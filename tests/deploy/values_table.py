"""Makes the table of values in the chart's README from the comments in values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"


@dataclass(frozen=True)
class Value:
    """One value that a user may set.

    Args:
        default: as JSON; empty for a section.
    """

    path: str
    default: str
    meaning: str


def values_in(text: str) -> list[Value]:
    """One row for each, and one for each section with a comment. A mapping is one value, unless
    something in it has a comment."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(_values(root, "", text.splitlines()))


def table(values: Sequence[Value]) -> str:
    rows = [f"| `{v.path}` | {v.default and f'`{v.default}`'} | {v.meaning} |" for v in values]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])


def with_table(readme: str, values: Sequence[Value]) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(values)}{END}{after}"


def _values(node: yaml.MappingNode, path: str, lines: Sequence[str]) -> Iterator[Value]:
    for key, below in node.value:
        here = f"{path}.{key.value}".lstrip(".")
        meaning = _comment_above(key.start_mark.line, lines)
        is_section = isinstance(below, yaml.MappingNode) and not below.flow_style
        inside = list(_values(below, here, lines)) if is_section else []
        if meaning and any(value.meaning for value in inside):
            yield Value(here, "", meaning)
        if any(value.meaning for value in inside) or (inside and not meaning):
            yield from inside
        else:
            yield Value(here, json.dumps(yaml.safe_load(yaml.serialize(below))), meaning)


def _comment_above(line: int, lines: Sequence[str]) -> str:
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip(" #"))
    return " ".join(found)

"""YAML with line numbers, and without the surprises of YAML 1.1.

`on`, `off`, `yes` and `no` are text, `1:30` is text and not a number of seconds, `010` is text and
not eight, a date is text. Keys stand once. Anchors, aliases and tags have no use here and are
refused, which also bounds how far a small file can unfold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from onceflow.errors import Fault

MAX_DIGITS = 40
"""Of a number, with its sign and exponent; nothing that is counted here needs half of it."""

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a file to a value."""


@dataclass(frozen=True)
class Place:
    """The place of a value in a file; lines count from 1.

    Args:
        line: of its key, or of the value itself in a list.
        text_line: of the first character of its text.
    """

    line: int
    text_line: int


@dataclass(frozen=True)
class Document:
    """A parsed file.

    Args:
        data: mappings, lists, text, numbers and booleans. None where a fault is.
        faults: what is wrong with the YAML itself.
    """

    data: Any
    faults: tuple[Fault, ...] = ()
    places: Mapping[Path, Place] = field(default_factory=dict)

    def place(self, path: Iterable[str | int]) -> Place:
        """Where the value at `path` stands, or the nearest mapping around it."""
        known = tuple(path)
        while known and known not in self.places:
            known = known[:-1]
        return self.places.get(known, Place(1, 1))


def parse_yaml(text: str) -> Document:
    """Parse one document. Never raises: what is wrong is in the result's `faults`."""
    builder = _Builder()
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            return Document(None, (Fault("the file is empty", expected="a mapping"),))
        data = builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        return Document(None, (_syntax_fault(error),))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(None, (Fault("a character that YAML does not allow", line=line),))
    except RecursionError:
        return Document(None, (Fault("nested too deeply", expected="a few levels"),))
    return Document(data, tuple(builder.faults), builder.places)


def with_texts(text: str, values: Mapping[Path, str]) -> str:
    """The same document with other texts at these paths; all else stays, comments included.

    It must have no fault, and a value at each path.
    """
    root: Any = yaml.compose(text, Loader=_Loader)
    found = [(_node_at(root, path), value) for path, value in values.items()]
    for node, value in sorted(found, key=lambda each: -each[0].start_mark.index):
        start, end = node.start_mark.index, node.end_mark.index
        text = f"{text[:start]}{json.dumps(value)}{text[end:]}"
    return text


def _node_at(node: Any, path: Path) -> Any:
    for name in path:
        node = next(value for key, value in node.value if key.value == name)
    return node


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as YAML 1.2's core schema does; refuses anchors and aliases."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            raise yaml.composer.ComposerError(
                problem="anchors and aliases are not supported", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


# Resolvers are looked up in this very dictionary: an empty one forgets those of YAML 1.1.
_Loader.yaml_implicit_resolvers = {}
_BOOL, _INT, _FLOAT, _NULL, _TEXT = (
    f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null", "str")
)
for _tag, _pattern, _first in (
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    # Underscores are not in the standard, and are how people write 200_000.
    (_INT, r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    (_FLOAT, r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    (_NULL, r"~|null|Null|NULL|", "~nN\0"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_first))
_Loader.yaml_implicit_resolvers[""] = [(_NULL, re.compile("^$"))]


class _Builder:
    """Turns nodes into plain values, and remembers where they stood."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.places: dict[Path, Place] = {}

    def build(self, node: yaml.Node, path: Path) -> Any:
        own = Place(node.start_mark.line + 1, _text_line(node))
        self.places.setdefault(path, own)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node.tag, node.value, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(Fault("a key that is not text", line=line, where=_dotted(path)))
                continue
            key = key_node.value
            if key in values:
                self.faults.append(
                    Fault(
                        f"`{key}` is here twice, first in line {first_lines[key]}",
                        where=_dotted((*path, key)),
                        line=line,
                        suggestion="Keep one of them.",
                    )
                )
                continue
            first_lines[key] = line
            self.places[*path, key] = Place(line, _text_line(value_node))
            values[key] = self.build(value_node, (*path, key))
        return values

    def _scalar(self, tag: str, text: str, path: Path) -> Any:
        if tag == _BOOL:
            return text.lower() == "true"
        if tag in {_INT, _FLOAT} and len(text) > MAX_DIGITS:
            self._refuse("a number that is too long", path, f"Use at most {MAX_DIGITS} digits.")
            return None
        if tag == _INT:
            return int(text)
        if tag == _FLOAT:
            return float(text)
        if tag == _NULL:
            self._refuse("no value", path, "Give it one, or remove the key.")
            return None
        if tag != _TEXT:
            self._refuse(f"the tag {tag} is not supported", path, "Remove it.")
        return text

    def _refuse(self, what: str, path: Path, suggestion: str) -> None:
        line = self.places[path].line
        self.faults.append(Fault(what, where=_dotted(path), line=line, suggestion=suggestion))


def _text_line(node: yaml.Node) -> int:
    is_block_text = isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}
    return int(node.start_mark.line) + (2 if is_block_text else 1)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _syntax_fault(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    what = error.problem or "not YAML"
    suggestion = "Indent with blanks, not with tabs." if "'\\t'" in what else ""
    line = mark.line + 1 if mark else None
    return Fault(f"not YAML that is understood here: {what}", line=line, suggestion=suggestion)

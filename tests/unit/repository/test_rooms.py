"""The pictures of rooms in docs/design.md agree with the imports.

A room is a package, a module, or several: the first line of a node's label names them. `a --> b`
says that a module of room `a` imports one of room `b`. An import that follows from other arrows
(a --> b --> c) need not be drawn. Dotted arrows are not imports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import grimp
import pytest

from tests.support.documents.markdown import ROOT, CodeBlock, Document

PACKAGES = ("onceflow", "onceflow_connectors")
PICTURES = [b for b in Document(ROOT / "docs" / "design.md").blocks() if b.language == "mermaid"]

_NODE = re.compile(r'^\s*(\w+)[\[({]+"([^"]+)"', re.MULTILINE)
_ARROW = re.compile(r"^\s*(\w+) -->(?:\|[^|]*\|)? (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Picture:
    """Rooms by the name of their node, and the arrows between them."""

    rooms: Mapping[str, frozenset[str]]
    arrows: frozenset[tuple[str, str]]

    @classmethod
    def parse(cls, text: str) -> Picture:
        rooms = {
            node: frozenset(_whole(each) for each in label.split("<br>")[0].split(", "))
            for node, label in _NODE.findall(text)
        }
        arrows = {(a, b) for a, ends in _ARROW.findall(text) for b in ends.strip().split(" & ")}
        return cls(rooms, frozenset(arrows))

    @property
    def scope(self) -> str:
        """The package that the whole picture is of; empty if it is of everything."""
        paths = [path.split(".") for room in self.rooms.values() for path in room]
        common = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
        return ".".join(parts[0] for parts in common)

    def room_of(self, module: str) -> str | None:
        """The room with the longest path to this module."""
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            path = ".".join(parts[:length])
            for node, paths in self.rooms.items():
                if path in paths:
                    return node
        return None

    def implied(self) -> set[tuple[str, str]]:
        """Every pair of rooms that a path of arrows joins."""
        found = set(self.arrows)
        while True:
            longer = {(a, d) for a, b in found for c, d in self.arrows if b == c} - found
            if not longer:
                return found
            found |= longer


def _whole(path: str) -> str:
    return path if path.partition(".")[0] in PACKAGES else f"onceflow.{path}"


@cache
def imports() -> Mapping[str, Set[str]]:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    return {
        module: graph.find_modules_directly_imported_by(module)
        for module in graph.modules
        if module not in PACKAGES
    }


def complaints(picture: Picture, imported: Mapping[str, Set[str]]) -> list[str]:
    scope = picture.scope
    modules = [
        m for m in imported if m != scope and f"{m}.".startswith(f"{scope}." if scope else "")
    ]
    found = [f"no room has {module}" for module in modules if picture.room_of(module) is None]
    real: dict[tuple[str, str], str] = {}
    for module in modules:
        for other in imported[module]:
            a, b = picture.room_of(module), picture.room_of(other)
            if a and b and a != b:
                real.setdefault((a, b), f"{module} imports {other}")
    found += [f"{a} --> {b} is drawn, but not in the code" for a, b in picture.arrows - {*real}]
    found += [
        f"{a} --> {b} is not drawn: {why}"
        for (a, b), why in real.items()
        if (a, b) not in picture.implied()
    ]
    return sorted(found)


@pytest.mark.parametrize("block", PICTURES, ids=lambda block: block.place)
def test_a_picture_of_rooms_agrees_with_the_imports(block: CodeBlock) -> None:
    found = complaints(Picture.parse(block.text), imports())

    assert not found, "\n" + "\n".join(found)


def test_one_picture_is_of_everything() -> None:
    assert "" in {Picture.parse(block.text).scope for block in PICTURES}


DRAWN = """
  a["a, b<br>two"]
  c[("c.d")]
  e["c.e"]
  f["onceflow_connectors.f"]
  a -->|asks| c & f
  c --> e
  e -.-> f
"""
IMPORTED = {
    "onceflow.a": {"onceflow.c.d.x", "onceflow.b"},
    "onceflow.b": {"onceflow.c.e"},
    "onceflow.c.d.x": {"onceflow.c.e"},
    "onceflow.c.e": set[str](),
    "onceflow_connectors.f": set[str](),
}


def test_these_checks_see_what_they_look_for() -> None:
    picture = Picture.parse(DRAWN)
    assert picture.arrows == {("a", "c"), ("a", "f"), ("c", "e")}
    assert complaints(picture, IMPORTED) == ["a --> f is drawn, but not in the code"]

    more = IMPORTED | {"onceflow.c.e": {"onceflow_connectors.f"}, "onceflow.g": set[str]()}
    assert complaints(picture, more) == [
        "a --> f is drawn, but not in the code",
        "e --> f is not drawn: onceflow.c.e imports onceflow_connectors.f",
        "no room has onceflow.g",
    ]


def test_a_picture_may_be_of_one_package() -> None:
    picture = Picture.parse('a["c.d"]\nb["c.e"]\na --> b')

    assert picture.scope == "onceflow.c"
    assert complaints(picture, IMPORTED) == []

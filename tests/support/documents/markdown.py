"""Reads Markdown the way its checks need it: code blocks, links, headings, named tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
KIT = ROOT / "service" / "onceflow" / "testing"
PROMISES = (KIT / "sources" / "contract.py", KIT / "targets" / "contract.py")
"""Whose tests a class inherits."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$")
_CODE = re.compile(r"`(?P<code>[^`\n]+)`")
_NAMED_TEST = re.compile(r"\btests/[\w/]+\.py(?:::\w+)*")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block.

    Args:
        place: document and line of the fence, for messages.
        marks: the words after it: `run` for what a unit test runs, `broker` for what needs one.
    """

    place: str
    language: str
    marks: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Document:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> Iterator[CodeBlock]:
        lines = self.text.splitlines()
        fences = [(i, m) for i, line in enumerate(lines) if (m := _FENCE.match(line))]
        for (start, opening), (end, _) in zip(fences[::2], fences[1::2], strict=True):
            language, *marks = opening["info"].split() or [""]
            text = "\n".join(line[len(opening["indent"]) :] for line in lines[start + 1 : end])
            yield CodeBlock(f"{self.name}:{start + 1}", language, tuple(marks), text + "\n")

    def prose(self) -> str:
        """The text without its code blocks; lines keep their numbers."""
        kept, is_code = [], False
        for line in self.text.splitlines():
            is_fence = _FENCE.match(line) is not None
            is_code ^= is_fence
            kept.append("" if is_code or is_fence else line)
        return "\n".join(kept)

    def links(self) -> Iterator[str]:
        """Targets of links, without those that leave the repository."""
        for found in _LINK.finditer(self.prose()):
            if "://" not in found["target"]:
                yield found["target"]

    def anchors(self) -> set[str]:
        """Anchors that a link may have after its `#`."""
        titles = (m["title"] for line in self.prose().splitlines() if (m := _HEADING.match(line)))
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    def inline_code(self) -> Sequence[str]:
        return [found["code"] for found in _CODE.finditer(self.prose())]

    def named_tests(self) -> set[str]:
        return {found[0] for found in _NAMED_TEST.finditer(self.text)}


def documents() -> list[Document]:
    """Everything that a reader of the repository is led to."""
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    top = [ROOT / name for name in names]
    folders = (ROOT / "docs", ROOT / "examples")
    below = [path for folder in folders for path in sorted(folder.rglob("*.md"))]
    return [Document(path) for path in [*top, *below]]


def names_of_tests(path: Path) -> set[str]:
    """`name` of each test function and `Class::name` of each test method, without running any."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    found = {test.name for test in _tests(module)}
    promises = {node.name: node for kit in PROMISES for node in _classes(kit)}
    for node in _classes(path):
        bases = [promises[b.id] for b in node.bases if isinstance(b, ast.Name) and b.id in promises]
        for tests in map(_tests, (node, *bases)):
            found |= {f"{node.name}::{test.name}" for test in tests}
    return found


def _classes(path: Path) -> list[ast.ClassDef]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in module.body if isinstance(node, ast.ClassDef)]


def _tests(parent: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for node in parent.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node

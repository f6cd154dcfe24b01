"""The limits of style that no linter knows, as a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("service", "connectors", "tests", "bench", "examples")
TEXT = (*CODE, "docs", "docker", "deploy", "requirements", ".ci", "Makefile", "pyproject.toml")
TEXT_SUFFIXES = {".md", ".py", ".toml", ".yaml", ".yml", ".json", ".xml", ".in", ".lock", ".sh", ""}

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 500
MAX_NESTING = 3

# Each means two things here: say whose it is (`producer_epoch`, `event_watermark_ms`).
BARE_NAMES = {"epoch", "watermark"}
EMPTY_SUFFIXES = ("Manager", "Helper", "Util", "Utils")
PRIVATE = re.compile(r"_[a-z]\w*$")
STILL_REACHED_INTO = {
    "tests/unit/spark/test_jvm.py _first",
}
"""Files and the members that they read. Only remove lines here."""
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
INDEX_ADDRESS = re.compile(r"https?://[^\s\"']*(?:/simple\b|/maven2\b|\.whl\b|\.jar\b)")
GLOSSARY = (
    "record",
    "row",
    "batch",
    "batch_id",
    "query_id",
    "run_id",
    "generation",
    "fencing_token",
    "sequence",
    "start_offset",
    "end_offset",
    "event_watermark_ms",
    "high_watermark",
    "last_stable_offset",
    "ledger",
    "checkpoint",
    "producer_epoch",
    "leader_epoch",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


def files(folders: tuple[str, ...]) -> Iterator[Path]:
    for name in folders:
        place = ROOT / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8"))
        for file in files(CODE)
        if file.suffix == ".py"
    }


def functions() -> Iterator[tuple[str, Function]]:
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, Function):
                yield f"{path}:{node.lineno} {node.name}", node


def length(function: Function) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    is_documented = ast.get_docstring(function, clean=False) is not None
    documented = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - documented


def nesting(node: ast.AST) -> int:
    """How many blocks stand inside one another; an `elif` is not deeper than its `if`."""
    return max((_depth(child, node) for child in ast.iter_child_nodes(node)), default=0)


def _depth(child: ast.AST, parent: ast.AST) -> int:
    if isinstance(child, Function | ast.ClassDef | ast.Lambda):
        return 0
    is_elif = isinstance(parent, ast.If) and isinstance(child, ast.If) and [child] == parent.orelse
    return nesting(child) + (isinstance(child, BLOCKS) and not is_elif)


def names(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case _:
                pass


def own_members(folders: tuple[str, ...]) -> set[str]:
    """Underscore names that the code below these folders defines for itself."""
    trees = [module for path, module in modules().items() if path.startswith(folders)]
    return {name for tree in trees for name in map(defined, ast.walk(tree)) if PRIVATE.match(name)}


def defined(node: ast.AST) -> str:
    """The name that is defined here, or an empty one."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return name
        case _:
            return ""


def reached_into(module: ast.Module, members: set[str]) -> set[str]:
    """Which of the product's own members are read here, other than by `self`."""
    reached = set()
    own = {*map(defined, ast.walk(module))}
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module=str(source), names=imported):
                if source.startswith("onceflow"):
                    reached |= {one.name for one in imported if one.name.startswith("_")}
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if name in members - own:
                reached.add(name)
            case _:
                pass
    return reached


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for file in files(TEXT)
        if file.suffix in TEXT_SUFFIXES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_functions_fit_on_a_screen() -> None:
    lengths = {name: length(node) for name, node in functions()}

    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION_LINES} == {}


def test_modules_can_be_read_in_one_go() -> None:
    sizes = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in modules()}

    assert {path: size for path, size in sizes.items() if size > MAX_MODULE_LINES} == {}


def test_blocks_are_not_nested_deeply() -> None:
    depths = {name: nesting(node) for name, node in functions()}

    assert {name: depth for name, depth in depths.items() if depth > MAX_NESTING} == {}


def test_words_with_two_meanings_are_never_used_alone() -> None:
    bare = [
        f"{path}:{line} {name}"
        for path, module in modules().items()
        for line, name in names(module)
        if name in BARE_NAMES
    ]

    assert bare == []


def test_classes_are_named_by_what_they_are() -> None:
    empty = [
        f"{path}:{node.lineno} {node.name}"
        for path, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and node.name.endswith(EMPTY_SUFFIXES)
    ]

    assert empty == []


def test_nothing_is_left_unfinished() -> None:
    assert matches(UNFINISHED) == []


def test_no_file_names_the_address_of_a_package_index() -> None:
    assert matches(INDEX_ADDRESS) == []


def test_the_glossary_explains_every_word_of_ours() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

    assert [word for word in GLOSSARY if f"`{word}`" not in text] == []


def test_tests_use_what_is_public() -> None:
    members = own_members(("service/", "connectors/"))
    reached = {
        f"{path} {name}"
        for path, module in modules().items()
        if path.startswith("tests/")
        for name in reached_into(module, members)
    }

    assert reached - STILL_REACHED_INTO == set()


def test_these_checks_see_what_they_look_for() -> None:
    source = '''
def deep(epoch):
    """Not
    counted."""
    if epoch:
        for _ in ():
            with open():
                while 1:
                    pass
    elif epoch is None:
        pass
'''
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)

    assert length(function) == 8
    assert nesting(function) == 4
    assert "epoch" in {name for _, name in names(ast.parse(source))}
    peeping = "from onceflow.a import _b\nc._d\nself._d\ne._replace()"
    assert reached_into(ast.parse(peeping), {"_d"}) == {"_b", "_d"}
    assert UNFINISHED.search("# FIX" + "ME later")
    assert INDEX_ADDRESS.search("https://repository.example" + "/maven2/a.jar")
    assert len(modules()) > 20

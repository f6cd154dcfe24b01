"""The documents say what is so: code compiles, commands, tests, files and links exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.main import build_app
from onceflow.errors import OnceflowError
from onceflow.pipeline.file.loader import load_pipeline
from tests.deploy.chart import REWRITE
from tests.support.documents.command_table import PAGE, command_table, table_in, with_table
from tests.support.documents.markdown import ROOT, CodeBlock, Document, documents, names_of_tests

DOCUMENTS = documents()
BLOCKS = [block for document in DOCUMENTS for block in document.blocks()]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL_LANGUAGES = {"sh", "bash", "console"}
RUN_TIMEOUT_S = 60

PACKAGES = ("service/onceflow", "connectors/onceflow_connectors")
MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|work|Users|mnt)/[\w.-]+"  # paths of one machine
    r"|\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b"  # addresses of hosts
)
MESSAGE_SEAM = re.compile(r"\.\.\.|: |; expected |; found |; |, |\b(?:[A-Z][A-Z_:-]*|\d+)\b|\(s\)")
"""What stands between the fixed parts of a message as docs/errors.md quotes it."""
MIN_FRAGMENT = 6
PLACEHOLDER = re.compile(r"[A-Z][A-Z_-]*(?:\.\.\.)?|\.\.\.|\[.*|<.*")

by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)


def commands_of(block: CodeBlock) -> Iterator[str]:
    """Command lines of a shell block; in a `console` block these follow a `$`."""
    for line in block.text.replace("\\\n", " ").splitlines():
        text = line.strip()
        if block.language == "console":
            if not text.startswith("$ "):
                continue
            text = text.removeprefix("$ ")
        if text and not text.startswith("#"):
            yield text


def shell_commands() -> list[str]:
    found = [c for b in BLOCKS if b.language in SHELL_LANGUAGES for c in commands_of(b)]
    inline = [code for document in DOCUMENTS for code in document.inline_code()]
    return [*found, *(c for c in inline if re.match(r"(make|onceflow) [a-z-]", c))]


def strings_in(package: Path) -> Iterator[str]:
    """Every literal of a package, f-strings in the parts between their braces."""
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for file in package.rglob("*.java"):
        yield from re.findall(r'"((?:[^"\\\n]|\\.)*)"', file.read_text(encoding="utf-8"))


@cache
def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE))


@cache
def command_line() -> Any:
    return typer.main.get_command(build_app())


def complaint_about(words: list[str]) -> str | None:
    """Say what is wrong with `onceflow WORDS...`; None if nothing is."""
    command = command_line()
    rest = list(words)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        if PLACEHOLDER.fullmatch(name) or name == "--help":
            return None
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    unknown = [w for w in rest if w.startswith("-") and w.split("=")[0] not in known | {"--help"}]
    return f"no option {', '.join(unknown)}" if unknown else None


def complaints(command: str) -> Iterator[str]:
    """Unknown make targets and unknown commands of onceflow in one line of shell."""
    command = re.sub(r'^eval "\$\((.*)\)"$', r"\1", command)
    for part in re.split(r"\s*(?:\||&&|;)\s*", command):
        words = shlex.split(part, comments=True)
        if words[:1] == ["make"]:
            yield from (f"no target {w}" for w in words[1:] if w not in make_targets())
        if words[:1] == ["onceflow"]:
            found = complaint_about(words[1:])
            if found:
                yield found


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_python_compiles(block: CodeBlock) -> None:
    compile(block.text, block.place, "exec")


@pytest.mark.parametrize(
    "block", [b for b in PYTHON if "run" in b.marks], ids=lambda block: block.place
)
def test_python_that_needs_no_broker_runs(block: CodeBlock) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.text.startswith("apiVersion:")], ids=lambda block: block.place
)
def test_pipelines_and_deliveries_are_valid(block: CodeBlock, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(block.text)

    commands = commands_for(file)
    load_pipeline(file) if commands is None else commands.guarantee_of(file)


@pytest.mark.parametrize("command", sorted(set(shell_commands())))
def test_commands_exist(command: str) -> None:
    assert list(complaints(command)) == []


@by_name
def test_links_lead_somewhere(document: Document) -> None:
    broken = []
    for target in document.links():
        path, _, anchor = target.partition("#")
        there = (document.path.parent / path).resolve() if path else document.path
        is_missing = not there.exists()
        if is_missing or (anchor and anchor not in Document(there).anchors()):
            broken.append(target)

    assert broken == []


@by_name
def test_named_tests_exist(document: Document) -> None:
    missing = []
    for name in sorted(document.named_tests()):
        path, _, test = name.partition("::")
        file = ROOT / path
        if not file.is_file() or (test and test not in names_of_tests(file)):
            missing.append(name)

    assert missing == []


def test_every_promise_names_a_test() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    promised = text.partition("## What is promised")[2].partition("## What is not promised")[0]
    sections = re.split(r"^### ", promised, flags=re.MULTILINE)[1:]

    assert len(sections) > 5
    assert [s.splitlines()[0] for s in sections if not re.search(r"tests/\S+::test_", s)] == []


PROMISED = {"E": 20, "S": 18, "G": 18, "K": 29, "X": 19}
"""How many promises each letter has: those of others before us, and what is worth having beyond."""


def test_every_promise_of_others_is_shown_by_a_test_or_said_to_be_missing() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    promised, _, missing = text.partition("## What was promised before us")[2].partition(
        "### Not yet"
    )
    shown = re.findall(r"^\| ([ESGKX]\d+) \| .+ \| (.+) \|$", promised, flags=re.MULTILINE)
    not_yet = re.findall(r"^\| ([ESGKX]\d+) \| ([^|]+\.) \|$", missing, flags=re.MULTILINE)

    listed = [name for name, _ in [*shown, *not_yet]]
    whole = [f"{letter}{n}" for letter, most in PROMISED.items() for n in range(1, most + 1)]
    assert sorted(listed) == sorted(whole)
    assert [name for name, tests in shown if not re.search(r"tests/\S+::test_", tests)] == []


def test_the_table_of_commands_is_current() -> None:
    """After a change on purpose: run it with ONCEFLOW_TEST_REWRITE_GOLDEN=1."""
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get(REWRITE):
        PAGE.write_text(page := with_table(page, command_table()), encoding="utf-8")

    assert table_in(page) == command_table()


def test_the_file_map_has_every_module() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    _, _, file_map = text.partition("## File map")
    named = set(re.findall(r"`([\w./-]+)`", file_map.partition("\n## ")[0]))
    modules = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if "__pycache__" not in file.parts and file.name not in {"__init__.py", "__main__.py"}
    }

    def is_named(module: str) -> bool:
        parents = [f"{parent}/" for parent in Path(module).parents]
        return module in named or any(parent in named for parent in parents)

    assert sorted(m for m in modules if not is_named(m)) == []
    paths = {name for name in named if name.startswith(PACKAGES)}
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@by_name
def test_no_document_speaks_of_one_machine(document: Document) -> None:
    assert MACHINE.findall(document.text) == []


def test_every_exit_code_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| (\d+) \| `(\w+)` \|", text, flags=re.MULTILINE))

    assert told == {(str(kind.exit_code), kind.__name__) for kind in OnceflowError.__subclasses__()}


def test_every_message_that_is_explained_exists() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").partition("## Common")[2]
    rows = re.findall(r"^\| (`.*?`.*?) \| ", text, flags=re.MULTILINE)
    quoted = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    source = "\0".join(string for package in PACKAGES for string in strings_in(ROOT / package))
    fragments = {part.strip() for quote in quoted for part in MESSAGE_SEAM.split(quote)}

    assert len(quoted) > 50
    unknown = sorted(f for f in fragments if len(f) > MIN_FRAGMENT and f not in source)
    assert not unknown, "\n".join(unknown)


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[([^\]]+)\]", text, flags=re.MULTILINE)

    assert newest is not None
    assert newest[1] == version
    assert "### Guarantees" in text


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (lambda: list(complaints("make demo nonsense")), ["no target nonsense"]),
        (lambda: list(complaints("onceflow runn a.yaml")), ["no command runn"]),
        (lambda: list(complaints("onceflow run a.yaml --untill x")), ["no option --untill"]),
        (lambda: list(complaints('eval "$(onceflow dev upp)"')), ["no command upp"]),
        (lambda: list(complaints("onceflow ledger show a --last 3 | head")), []),
        (lambda: MACHINE.findall("at 10.1.2.3:9092 and 127.0.0.1:9092"), ["10.1.2.3"]),
        (lambda: MACHINE.findall("see /home/me/a and ./tmp/x"), ["/home/me"]),
    ],
)
def test_these_checks_see_what_they_look_for(
    check: Callable[[], list[str]], wrong: list[str]
) -> None:
    assert check() == wrong

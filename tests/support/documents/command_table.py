"""The table of commands in docs/pipeline.md, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from onceflow.cli.main import build_app
from tests.support.documents.markdown import ROOT

PAGE = ROOT / "docs" / "pipeline.md"
OF_MANY = {"--bootstrap-servers", "--config", "--help", "--output"}
"""Options that the page explains below the table."""
_TABLE = re.compile(r"(?<=\n## Command line\n\n)(\|.*\n)+")
_VALUES = {int: "N", float: "N", Path: "FILE", str: "TEXT"}


def command_table() -> str:
    """A row for each command: its arguments, its help and its own options."""
    rows = [_row(name, command) for name, command in _commands(typer.main.get_command(build_app()))]
    return "\n".join(["| command | does |", "|---|---|", *rows, ""])


def table_in(page: str) -> str:
    found = _TABLE.search(page)
    assert found is not None
    return found[0]


def with_table(page: str, table: str) -> str:
    return _TABLE.sub(lambda _: table, page, count=1)


def _commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *names, name)
        else:
            yield " ".join([*names, name]), command


def _row(name: str, command: Any) -> str:
    options = [p for p in command.params if p.opts[0].startswith("-")]
    arguments = [_argument(p) for p in command.params if p not in options]
    own = [_option(p) for p in options if p.opts[0] not in OF_MANY or "sarif" in _value(p)]
    does = [" ".join(command.help.split()), *own]
    called = " ".join([name, *arguments])
    row = f"`{called}`", "<br>".join(does)
    return "| {} | {} |".format(*(cell.replace("|", r"\|") for cell in row))


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()) + ("..." if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    return f"`{parameter.opts[0]}{value}`: {parameter.help}"


def _value(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    if parameter.metavar:
        return str(parameter.metavar)
    if issubclass(kind, Enum):
        return "|".join(each.value for each in kind)
    return _VALUES.get(kind, "")

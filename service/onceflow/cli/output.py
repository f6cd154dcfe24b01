"""How commands speak: text for people, JSON for programs, faults in one form everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from onceflow.errors import Fault


class OutputFormat(StrEnum):
    """What a command writes to its standard output."""

    TEXT = "text"
    JSON = "json"


FORMAT_HELP = "Default: text on a terminal, JSON otherwise."
OutputOption = Annotated[OutputFormat | None, typer.Option("--output", "-o", help=FORMAT_HELP)]


def chosen(output: OutputFormat | None) -> OutputFormat:
    """The format asked for, or the one that suits standard output."""
    if output is not None:
        return output
    return OutputFormat.TEXT if sys.stdout.isatty() else OutputFormat.JSON


def print_json(value: object) -> None:
    """One JSON value, on one line."""
    typer.echo(json.dumps(value, default=str))


def fault_fields(fault: Fault) -> Mapping[str, Any]:
    """A fault as a JSON object, without what it does not say."""
    return {name: value for name, value in asdict(fault).items() if value not in (None, "")}

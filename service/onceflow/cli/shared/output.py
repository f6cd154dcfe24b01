"""How commands speak: text, or JSON for programs that ask for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from onceflow.errors import Fault


class ResultFormat(StrEnum):
    """The format of a command's standard output."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    ResultFormat, typer.Option("--output", "-o", help="Format of the results.")
]


def print_json(value: object) -> None:
    """One JSON value, on one line."""
    typer.echo(json.dumps(value, default=str))


def print_result(output: ResultFormat, value: object, text: str) -> None:
    """A result of one line, in the format that was asked for."""
    if output is ResultFormat.JSON:
        print_json(value)
    else:
        typer.echo(text)


def fault_fields(fault: Fault) -> Mapping[str, Any]:
    """A fault as a JSON object, without what it does not say."""
    return {name: value for name, value in asdict(fault).items() if value not in (None, "")}

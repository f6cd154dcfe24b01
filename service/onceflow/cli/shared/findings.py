"""Tells what holds something up, with evidence and fix: for `onceflow why-stuck`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import typer

from onceflow.cli.shared.output import ResultFormat, print_json

if TYPE_CHECKING:
    from onceflow.observe.diagnosis import Diagnosis

WATCH_S = 2.0
"""For which input is watched, to tell how much comes in."""
FOUND = 1
"""Exit code if something holds it up."""


class Seen(Protocol):
    """A look at the runs of a file of any kind."""

    @property
    def lag(self) -> int | None:
        """Records that wait; None if it is unknown, or nothing is read."""

    @property
    def waiting(self) -> str:
        """How it stands, for people."""

    @property
    def blind(self) -> Mapping[str, str]:
        """Blind spots, and the reason for each."""


def tell(
    name: str,
    findings: Sequence[Diagnosis],
    facts: Seen,
    output: ResultFormat,
) -> None:
    """Print what holds something up, and exit with 1 if anything does."""
    from onceflow.observe.diagnosis import fields_of

    if output is ResultFormat.JSON:
        print_json(fields_of(findings, facts.lag, facts.blind))
    else:
        _print_text(name, findings, facts)
    if findings:
        raise typer.Exit(FOUND)


def _print_text(name: str, findings: Sequence[Diagnosis], facts: Seen) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    if not findings:
        console.print(Text(f"{name}: nothing holds it up; {facts.waiting}"))
    for finding in findings:
        console.print(Text.assemble((f"{finding.cause}: ", "bold red"), finding.what))
        lines = [Text(f"- {line}") for line in finding.evidence]
        for text in (*lines, Text.assemble(("fix: ", "green"), finding.cure)):
            console.print(Padding(text, (0, 0, 0, 2), expand=False))
    for what, why in facts.blind.items():
        console.print(Text(f"  not seen: {what}: {why}", style="yellow"))

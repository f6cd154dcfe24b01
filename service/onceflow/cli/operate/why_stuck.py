"""`onceflow why-stuck`: what keeps a pipeline from getting on, with evidence and cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from onceflow.cli.operate.target import PipelineTarget, survey_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json

if TYPE_CHECKING:
    from onceflow.observe.diagnosis import Diagnosis
    from onceflow.observe.facts import Facts

WATCH_S = 2.0
"""For which input is watched, to tell how much comes in."""
FOUND = 1
"""Exit code if something holds the pipeline up."""


def why_stuck(
    pipeline: PipelineTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Name what holds a pipeline up, with evidence and fix. Exits with 1 if anything does.

    The most serious cause comes first. Only its file tells which sources have an event time.
    """
    from onceflow.observe.diagnosis import diagnose, fields_of

    with survey_of(pipeline, settings_of(bootstrap_servers, config)) as survey:
        facts = survey.watched(survey.facts(), WATCH_S)
    findings = diagnose(facts)
    if output is ResultFormat.JSON:
        print_json(fields_of(facts, findings))
    else:
        _print_text(facts, findings)
    if findings:
        raise typer.Exit(FOUND)


def _print_text(facts: Facts, findings: Sequence[Diagnosis]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    name = facts.head.pipeline
    if not findings:
        console.print(Text(f"{name}: nothing holds it up; {facts.waiting}"))
    for finding in findings:
        console.print(Text.assemble((f"{finding.cause}: ", "bold red"), finding.what))
        lines = [Text(f"- {line}") for line in finding.evidence]
        for text in (*lines, Text.assemble(("fix: ", "green"), finding.cure)):
            console.print(Padding(text, (0, 0, 0, 2), expand=False))
    for what, why in facts.blind.items():
        console.print(Text(f"  not seen: {what}: {why}", style="yellow"))

"""`onceflow why-stuck`: what holds up a pipeline or a delivery, with evidence and fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from onceflow.cli.operate.target import (
    LookTarget,
    delivery_in,
    delivery_survey_of,
    survey_of,
)
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json

if TYPE_CHECKING:
    from onceflow.delivery.survey import DeliveryFacts
    from onceflow.observe.diagnosis import Diagnosis
    from onceflow.observe.facts import Facts

WATCH_S = 2.0
"""For which input is watched, to tell how much comes in."""
FOUND = 1
"""Exit code if something holds the pipeline up."""


def why_stuck(
    pipeline: LookTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Name what holds a pipeline or a delivery up, with evidence and fix. Exits with 1 if so.

    The most serious cause comes first. Only its file tells which sources have an event time.
    """
    from onceflow.observe.diagnosis import diagnose

    settings = settings_of(bootstrap_servers, config)
    if (delivery := delivery_in(pipeline)) is not None:
        from onceflow.delivery.diagnosis import diagnose as diagnose_delivery

        with delivery_survey_of(delivery, settings) as looked:
            seen = looked.watched(looked.facts(), WATCH_S)
        _tell(delivery.name, diagnose_delivery(seen), seen, output)
        return
    with survey_of(pipeline, settings) as survey:
        facts = survey.watched(survey.facts(), WATCH_S)
    _tell(facts.head.pipeline, diagnose(facts), facts, output)


def _tell(
    name: str,
    findings: Sequence[Diagnosis],
    facts: Facts | DeliveryFacts,
    output: ResultFormat,
) -> None:
    from onceflow.observe.diagnosis import fields_of

    if output is ResultFormat.JSON:
        print_json(fields_of(findings, facts.lag, facts.blind))
    else:
        _print_text(name, findings, facts)
    if findings:
        raise typer.Exit(FOUND)


def _print_text(name: str, findings: Sequence[Diagnosis], facts: Facts | DeliveryFacts) -> None:
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

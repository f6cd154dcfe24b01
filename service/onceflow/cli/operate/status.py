"""`onceflow status`: where the runs of a file stand, seen from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceflow.cli.operate.target import LookTarget, commands_for_target, survey_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.cli.shared.standing import inputs_table, notes_on, place_of


def status(
    pipeline: LookTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show a pipeline's owner, positions, lag, last commit and account of records.

    Also which source holds the event watermark, open transactions in its input, and when retention
    would overtake it. For a delivery and an enrichment: target, instances, positions and lag; for a
    gateway: instances, owners of slots, and posts that were refused lately.
    """
    from onceflow.observe.summary import summary_of
    from onceflow.texts import time_text

    settings = settings_of(bootstrap_servers, config)
    if (commands := commands_for_target(pipeline)) is not None:
        commands.status(Path(pipeline), settings, output)
        return
    with survey_of(pipeline, settings) as survey:
        facts = survey.facts()
    if output is ResultFormat.JSON:
        print_json(summary_of(facts))
    else:
        print_text(summary_of(facts, time_text))


def _account_text(counts: Mapping[str, int]) -> str:
    """Whatever happened; `read` and `written` also where nothing did."""
    told = {kind: count for kind, count in counts.items() if count or kind in {"read", "written"}}
    return ", ".join(f"{kind} {count:,}" for kind, count in told.items())


def print_text(facts: dict[str, Any]) -> None:
    """Print the facts of a pipeline for people."""
    from rich.text import Text

    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    owner = facts["owner"] or {"host": "-", "token": "-", "started_at": "-"}
    console.print(Text.assemble((facts["pipeline"], "bold"), f" generation {facts['generation']}"))
    console.print(f"  last commit: batch {facts['batch_id']} at {facts['batch_timestamp']}")
    console.print(f"  event watermark: {facts['event_watermark']}")
    console.print(f"  owner: {owner['host']}, token {owner['token']}, since {owner['started_at']}")
    for name, counts in (("last batch", facts["records"]), ("in total", facts["totals"])):
        console.print(f"  {name}: {_account_text(counts)}")
    for parameter, value in facts["parameters"].items():
        console.print(Text(f"  parameter {parameter}: {value}"))
    for reference, version in facts["references"].items():
        # It stays whole, so that it can be copied.
        console.print(Text(f"  reference {reference}: {version}"), soft_wrap=True)
    for waiver in facts["waivers"]:
        console.print(Text(f"  waived: {waiver}", style="yellow"))
    for line in notes_on(facts):
        console.print(Text(f"  {line}"))
    names = {"source": lambda row: str(row["source"]), "input": place_of}
    console.print(inputs_table(facts["sources"], names))

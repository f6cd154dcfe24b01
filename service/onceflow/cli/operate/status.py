"""`onceflow status`: where a pipeline or a delivery stands, seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onceflow.cli.operate.target import (
    LookTarget,
    delivery_in,
    delivery_survey_of,
    survey_of,
)
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from onceflow.delivery.model import Delivery
    from onceflow.settings import Settings

_FIGURES = ("position", "lag", "undecided")


def status(
    pipeline: LookTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show a pipeline's owner, positions, lag, last commit and account of records.

    Also which source holds the event watermark, open transactions in its input, and when retention
    would overtake it. For a delivery: its target, its instances, positions and lag.
    """
    from onceflow.observe.summary import summary_of
    from onceflow.texts import time_text

    settings = settings_of(bootstrap_servers, config)
    if (delivery := delivery_in(pipeline)) is not None:
        _show_delivery(delivery, settings, output)
        return
    with survey_of(pipeline, settings) as survey:
        facts = survey.facts()
    if output is ResultFormat.JSON:
        print_json(summary_of(facts))
    else:
        print_text(summary_of(facts, time_text))


def _show_delivery(delivery: Delivery, settings: Settings, output: ResultFormat) -> None:
    from onceflow.delivery.survey import fields_of
    from onceflow.texts import time_text

    with delivery_survey_of(delivery, settings) as survey:
        facts = survey.facts()
    if output is ResultFormat.JSON:
        print_json(fields_of(facts))
    else:
        _print_delivery(fields_of(facts, time_text))


def _print_delivery(facts: dict[str, Any]) -> None:
    from rich.text import Text

    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    console.print(Text.assemble((facts["delivery"], "bold"), f" to {facts['to']}"))
    console.print(Text(f"  {facts['guarantee']}"))
    style = "" if facts["target"] == "well" else "yellow"
    console.print(Text(f"  target: {facts['target']}", style=style))
    known = facts["instances"]
    console.print(f"  instances: {'unknown' if known is None else known}")
    for line in _notes(facts):
        console.print(Text(f"  {line}"))
    console.print(_inputs_table(facts["topics"], {"topic": _place_of}))


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
    for waiver in facts["waivers"]:
        console.print(Text(f"  waived: {waiver}", style="yellow"))
    for line in _notes(facts):
        console.print(Text(f"  {line}"))
    names = {"source": lambda row: str(row["source"]), "input": _place_of}
    console.print(_inputs_table(facts["sources"], names))


def _place_of(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def _inputs_table(
    rows: Iterable[Mapping[str, Any]], names: Mapping[str, Callable[[Mapping[str, Any]], str]]
) -> Table:
    """A row for each partition: its names under these headings, figures, and the newest record."""
    from rich.table import Column, Table

    # Names may be broken over lines, figures and times may not.
    table = Table(
        *(Column(heading, overflow="fold") for heading in names),
        *(Column(name, no_wrap=True, justify="right") for name in _FIGURES),
        Column("newest record", no_wrap=True),
    )
    for row in rows:
        figures = (f"{row[name]:,}" for name in _FIGURES)
        table.add_row(*(name(row) for name in names.values()), *figures, row["newest_record"])
    return table


def _notes(facts: dict[str, Any]) -> Iterator[str]:
    from onceflow.texts import span_text, time_text

    if (holder := facts.get("watermark_holder")) and len(
        {row["source"] for row in facts["sources"]}
    ) > 1:
        newest = time_text(holder["newest_ms"] or 0)
        place = holder["place"] or "no record"
        yield f"watermark held by: {holder['source']} ({place}, newest record {newest})"
    for transaction in facts["open_transactions"]:
        yield (
            f"open transaction: {transaction['transactional_id'] or '(no coordinator)'} in"
            f" {transaction['topic']}-{transaction['partition']} since"
            f" {time_text(transaction['started_ms'])}"
        )
    for one in facts["retention"]:
        topic, partition = one["place"]
        mark = " (soon)" if one["is_soon"] else ""
        left = span_text(one["left_s"])
        yield f"standing still, {one['rule']} overtakes {topic}-{partition} in {left}{mark}"
    for what, why in facts["not_seen"].items():
        yield f"not seen: {what}: {why}"

"""`onceflow status`: where a pipeline stands, from its ledger and its brokers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from onceflow.cli.ledger import time_text
from onceflow.cli.options import BootstrapServers, ConfigFile
from onceflow.cli.output import OutputFormat, OutputOption, chosen, print_json
from onceflow.cli.target import PipelineTarget, opened_survey, target_of

if TYPE_CHECKING:
    from onceflow.ops.facts import Facts
    from onceflow.protocol.ledger import HeadEntry, OwnerEntry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(
    pipeline: PipelineTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = None,
) -> None:
    """Show owner, position, lag, watermark, retention, last commit and account of all records."""
    with opened_survey(target_of(pipeline), bootstrap_servers, config) as survey:
        seen = survey.facts()
    facts = {**_facts(seen.head, seen.owner), **_surroundings(seen)}
    if chosen(output) is OutputFormat.JSON:
        print_json(facts)
        return
    _print_text(facts)


def _facts(head: HeadEntry, owner: OwnerEntry | None) -> dict[str, Any]:
    return {
        "pipeline": head.pipeline,
        "generation": head.generation,
        "batch_id": head.batch.batch_id,
        "query_id": head.batch.query_id,
        "batch_timestamp": time_text(head.plan.batch_timestamp_ms),
        "event_watermark": time_text(head.plan.event_watermark_ms),
        "records": asdict(head.records),
        "totals": asdict(head.totals),
        "waivers": head.waivers,
        "output": {"topic": head.sink.topic, "sequence": _last_sequences(head)},
        "owner": {
            "host": owner.host,
            "token": owner.token,
            "run_id": owner.run_id,
            "started_at": time_text(owner.started_at_ms),
        }
        if owner
        else None,
    }


def _surroundings(seen: Facts) -> dict[str, Any]:
    from onceflow.ops.facts import watermark_holder

    holder = watermark_holder(seen)
    return {
        "sources": [*_positions(seen)],
        "open_transactions": [asdict(transaction) for transaction in seen.transactions],
        "watermark_holder": asdict(holder) if holder else None,
        "retention": [{**asdict(one), "is_soon": one.is_soon} for one in seen.forecasts],
        "last_bulletin": time_text(seen.bulletin.at_ms) if seen.bulletin else None,
        "last_end": asdict(seen.ending) if seen.ending else None,
        "not_seen": seen.blind,
    }


def _account_text(counts: Mapping[str, int]) -> str:
    """Whatever happened; `read` and `written` also where nothing did."""
    told = {kind: count for kind, count in counts.items() if count or kind in {"read", "written"}}
    return ", ".join(f"{kind} {count:,}" for kind, count in told.items())


def _last_sequences(head: HeadEntry) -> dict[int, int]:
    return {p: head.sink.next_sequence(p) - 1 for p in range(head.sink.partitions)}


def _positions(seen: Facts) -> Iterator[dict[str, Any]]:
    for one in seen.inputs:
        yield {
            "source": one.source,
            "topic": one.topic,
            "partition": one.partition,
            "position": one.position,
            "lag": one.lag,
            "undecided": one.undecided,
            "newest_record": time_text(one.newest_ms or 0),
        }


def _print_text(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    owner = facts["owner"] or {"host": "-", "token": "-", "started_at": "-"}
    console.print(f"[bold]{facts['pipeline']}[/] generation {facts['generation']}")
    console.print(f"  last commit: batch {facts['batch_id']} at {facts['batch_timestamp']}")
    console.print(f"  event watermark: {facts['event_watermark']}")
    console.print(f"  owner: {owner['host']}, token {owner['token']}, since {owner['started_at']}")
    for name, counts in (("last batch", facts["records"]), ("in all", facts["totals"])):
        console.print(f"  {name}: {_account_text(counts)}")
    for waiver in facts["waivers"]:
        console.print(Text(f"  waived: {waiver}", style="yellow"))
    for line in _notes(facts):
        console.print(Text(f"  {line}"))
    table = Table(*facts["sources"][0]) if facts["sources"] else Table("source")
    for row in facts["sources"]:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def _notes(facts: dict[str, Any]) -> Iterator[str]:
    from onceflow.ops.retention import duration_text

    if (holder := facts["watermark_holder"]) and len(
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
        left = duration_text(one["left_s"])
        yield f"standing still, {one['rule']} overtakes {topic}-{partition} in {left}{mark}"
    for what, why in facts["not_seen"].items():
        yield f"not seen: {what}: {why}"

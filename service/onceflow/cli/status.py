"""`onceflow status`: where a pipeline stands, from its ledger and its brokers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from onceflow.cli.ledger import PipelineName, opened, read_history, time_text
from onceflow.cli.options import BootstrapServers, ConfigFile
from onceflow.cli.output import OutputFormat, OutputOption, chosen, print_json

if TYPE_CHECKING:
    from onceflow.clock import Deadline
    from onceflow.contracts.connector import Broker
    from onceflow.protocol.ledger import HeadEntry, OwnerEntry

LOOK_UP_TIMEOUT_S = 30.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(
    name: PipelineName,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = None,
) -> None:
    """Show owner, position, lag, watermark, the last commit, and the account of all records."""
    from onceflow.clock import Deadline, SystemClock

    deadline = Deadline.after(SystemClock(), LOOK_UP_TIMEOUT_S)
    with opened(name, bootstrap_servers, config) as (ledger, broker):
        head = read_history(name, ledger)[-1]
        owner = ledger.read_owner(deadline)
        facts = _facts(head, owner)
        facts["sources"] = [*_positions(head, broker, deadline)]
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


def _account_text(counts: Mapping[str, int]) -> str:
    """Whatever happened; `read` and `written` also where nothing did."""
    told = {kind: count for kind, count in counts.items() if count or kind in {"read", "written"}}
    return ", ".join(f"{kind} {count:,}" for kind, count in told.items())


def _last_sequences(head: HeadEntry) -> dict[int, int]:
    return {p: head.sink.next_sequence(p) - 1 for p in range(head.sink.partitions)}


def _positions(head: HeadEntry, broker: Broker, deadline: Deadline) -> Iterator[dict[str, Any]]:
    for source, topics in head.plan.sources.items():
        for topic, ranges in topics.items():
            offsets = broker.offsets(topic, deadline)
            for partition, (_, end) in sorted(ranges.items()):
                _, last_stable_offset, high_watermark = offsets.get(partition, (0, end, end))
                yield {
                    "source": source,
                    "topic": topic,
                    "partition": partition,
                    "position": end,
                    "lag": last_stable_offset - end,
                    "undecided": high_watermark - last_stable_offset,
                }


def _print_text(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    owner = facts["owner"] or {"host": "-", "token": "-", "started_at": "-"}
    console.print(f"[bold]{facts['pipeline']}[/] generation {facts['generation']}")
    console.print(f"  last commit: batch {facts['batch_id']} at {facts['batch_timestamp']}")
    console.print(f"  event watermark: {facts['event_watermark']}")
    console.print(f"  owner: {owner['host']}, token {owner['token']}, since {owner['started_at']}")
    for name, counts in (("last batch", facts["records"]), ("in all", facts["totals"])):
        console.print(f"  {name}: {_account_text(counts)}")
    for waiver in facts["waivers"]:
        console.print(f"  waived: {waiver}", style="yellow")
    table = Table("source", "topic", "partition", "position", "lag", "undecided")
    for row in facts["sources"]:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)

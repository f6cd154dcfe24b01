"""`onceflow ledger`: the history of commits, its comparison with the output, its repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.output import OutputFormat, OutputOption, chosen, print_json

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker
    from onceflow.contracts.sink import Ledger
    from onceflow.protocol.ledger import HeadEntry

READ_TIMEOUT_S = 60.0
VERIFY_TIMEOUT_S = 3_600.0
"""For reading a whole output topic."""
WRONG = 7
"""Exit code when output and ledger disagree, as for corruption."""

PipelineName = Annotated[str, typer.Argument(help="Name of the pipeline.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="The history of commits: show, verify, rebuild.")
    group.command("show")(show)
    group.command("verify")(verify)
    group.command("rebuild")(rebuild)
    app.add_typer(group, name="ledger")


def show(
    name: PipelineName,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    last: Annotated[int, typer.Option(help="How many batches, from the newest.", min=1)] = 20,
    output: OutputOption = None,
) -> None:
    """Show the newest commits, oldest first."""
    import json

    with opened(name, bootstrap_servers, config) as (ledger, _):
        history = read_history(name, ledger)[-last:]
    if chosen(output) is OutputFormat.JSON:
        for entry in history:
            print_json(json.loads(entry.to_json()))
        return
    _print_table(history)


def verify(
    name: PipelineName,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = None,
) -> None:
    """Compare the whole output topic with the ledger. Exit code 7 if they disagree."""
    from onceflow.clock import Deadline, SystemClock
    from onceflow.ops.verification import verify as compare

    with opened(name, bootstrap_servers, config) as (ledger, broker):
        deadline = Deadline.after(SystemClock(), VERIFY_TIMEOUT_S)
        found = compare(broker, read_history(name, ledger), deadline)
    if chosen(output) is OutputFormat.JSON:
        print_json(
            {
                "records": found.records,
                "foreign": found.foreign,
                "batches": found.batches,
                "repeats": found.repeats,
                "flagged": found.flagged,
                "lost": found.lost,
                "findings": [str(finding) for finding in found.findings],
            }
        )
    else:
        typer.echo(f"{found.records} records and {found.batches} batches compared")
        for count, what in (
            (found.repeats, "records are there more than once, as at_least_once allows"),
            (found.flagged, "records are of a driver that was taken over, under another plan"),
            (found.lost, "records are missing where the ledger names them as at risk"),
        ):
            if count:
                typer.echo(f"  {count} {what}")
        for finding in found.findings:
            typer.echo(f"  {finding}", err=True)
    if found.findings:
        raise typer.Exit(WRONG)


def rebuild(
    file: Annotated[Path, typer.Argument(help="The pipeline file: it names the checkpoint.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Reconstruct a lost `head` from the output and the checkpoint. Does not run the pipeline."""
    from onceflow.app import RunOptions
    from onceflow.cli.report import open_report
    from onceflow.cli.run import open_application
    from onceflow.clock import SystemClock
    from onceflow.protocol.compare import Remedy

    options = RunOptions(remedy=Remedy.REBUILD, reason=reason)
    with open_report(SystemClock()) as report:
        head = open_application(file, bootstrap_servers, config, options, report).repair()
        report("rebuilt", batch_id=head.batch.batch_id, sequence=dict(head.sink.sequence))


@contextmanager
def opened(
    name: str, bootstrap_servers: str | None, config: Path | None
) -> Iterator[tuple[Ledger, Broker]]:
    """A ledger and a broker to look things up with.

    Raises:
        ConfigError: no such pipeline, nobody answers, or the settings are wrong.
    """
    from onceflow.cli.run import CONNECTOR
    from onceflow.clock import Deadline, SystemClock
    from onceflow.contracts.connector import find_connector
    from onceflow.protocol.identity import check_pipeline_name

    deadline = Deadline.after(SystemClock(), READ_TIMEOUT_S)
    connector = find_connector(CONNECTOR)
    connection = settings_of(bootstrap_servers, config).connection()
    ledger = connector.ledger(check_pipeline_name(name), connection)
    broker = connector.broker(connection)
    try:
        # Whoever asks for a topic waits much longer for brokers that are not there.
        broker.brokers(deadline)
        yield ledger, broker
    finally:
        ledger.close()
        broker.close()


def read_history(name: str, ledger: Ledger) -> Sequence[HeadEntry]:
    """Every readable `head`, oldest first; at least one.

    Raises:
        ConfigError: the pipeline was never started at these brokers.
    """
    from onceflow.clock import Deadline, SystemClock
    from onceflow.errors import ConfigError
    from onceflow.protocol.identity import DRIVER_SLOT

    deadline = Deadline.after(SystemClock(), READ_TIMEOUT_S)
    history = [*ledger.history(DRIVER_SLOT, deadline)] if ledger.exists(deadline) else []
    if not history:
        raise ConfigError(
            "no such pipeline",
            subject=name,
            expected="the name of a pipeline that was started at these brokers",
            then="check the name and the address",
        )
    return history


def _print_table(history: Sequence[HeadEntry]) -> None:
    from rich.console import Console
    from rich.table import Table

    from onceflow.protocol.delivery import Delivery

    headings = ["batch", "gen", "token", "batch clock", "read", "late", "written", "digest", "note"]
    # Of interest to whoever chose another mode than the usual one.
    is_usual = all(e.delivery is Delivery.EXACTLY_ONCE and not e.at_risk for e in history)
    table = Table(*headings, *(() if is_usual else ("delivery", "at risk")))
    for entry in history:
        counts = entry.records
        table.add_row(
            str(entry.batch.batch_id),
            str(entry.generation),
            str(entry.token),
            time_text(entry.plan.batch_timestamp_ms),
            f"{counts.read:,}",
            f"{counts.late:,}",
            f"{counts.written:,}",
            entry.digest[:12],
            entry.note,
            *(() if is_usual else (entry.delivery.value, _at_risk_text(entry))),
        )
    Console().print(table)


def _at_risk_text(entry: HeadEntry) -> str:
    ranges = sorted(entry.at_risk.items())
    return ", ".join(f"{partition}: {first}-{last}" for partition, (first, last) in ranges)


def time_text(unix_ms: int) -> str:
    """A moment for people; 0 means that there is none."""
    if unix_ms == 0:
        return "-"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=unix_ms)
    return moment.isoformat(timespec="seconds")

"""`onceflow ledger`: the history of commits, its comparison with the output, its repair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.operate.target import PipelineTarget, file_of, survey_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, load_allowed, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json, print_result
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.contracts.record import Record
    from onceflow.protocol.ledger import HeadEntry
    from onceflow.repair.verification import Verification
    from onceflow.settings import Settings

VERIFY_TIMEOUT_S = 3_600.0
"""For reading a whole output topic."""
SHOWN_DIGEST = 8
"""Characters of a digest in the table, which fits 80 columns."""
WRONG = 7
"""Exit code when output and ledger disagree, as for corruption."""


group = typer.Typer(no_args_is_help=True, help="Show, verify and rebuild the history of commits.")


@group.command()
def show(
    pipeline: PipelineTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    last: Annotated[
        int, typer.Option(help="Show the newest batches, at most this many.", min=1)
    ] = 20,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show the newest commits, oldest first."""
    with survey_of(pipeline, settings_of(bootstrap_servers, config)) as survey:
        history = survey.history()[-last:]
    if output is ResultFormat.TEXT:
        print_table(history)
    else:
        for entry in history:
            print_json(json.loads(entry.to_json()))


@group.command()
def verify(
    pipeline: PipelineTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Compute only this batch again and compare it. Needs the pipeline file.", min=0
        ),
    ] = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Compare the whole output topic with the ledger. Exits with 7 if they disagree."""
    settings = settings_of(bootstrap_servers, config)
    if batch is not None:
        _recompute(file_of(pipeline), batch, settings, output)
    else:
        report(compare(pipeline, settings), output)


def compare(
    pipeline: str,
    settings: Settings,
    topic: str | None = None,
    deliver: Callable[[Record], None] = lambda _: None,
) -> Verification:
    """Compare the output of a pipeline with its ledger, and give `deliver` each record once.

    With a topic, the output must be there.

    Raises:
        ConfigError: no such pipeline, or its output is elsewhere.
    """
    from onceflow.protocol.identity import DRIVER_SLOT
    from onceflow.repair.verification import verify

    with survey_of(pipeline, settings) as survey:
        deadline = SystemClock().within(VERIFY_TIMEOUT_S)
        history = survey.history()
        if topic not in {None, history[-1].sink.topic}:
            raise ConfigError(
                "this pipeline writes to another topic",
                subject=survey.pipeline,
                expected=history[-1].sink.topic,
                found=topic or "",
                then="name the pipeline with --pipeline",
            )
        newest = partial(survey.ledger.read_head, DRIVER_SLOT, deadline)
        return verify(survey.broker, history, deadline, newest, deliver)


def report(found: Verification, output: ResultFormat, printed: str = "") -> None:
    """Print what a comparison found, and exit with 7 if it is anything.

    If the records of a topic were `printed` to standard output, all else goes to standard error.
    """
    if output is ResultFormat.JSON:
        told = {**asdict(found), "findings": [str(finding) for finding in found.findings]}
        typer.echo(json.dumps(told), err=bool(printed))
    else:
        for line in summary_lines(found, printed):
            typer.echo(line, err=bool(printed))
        for finding in found.findings:
            typer.echo(f"  {finding}", err=True)
    if found.findings:
        raise typer.Exit(WRONG)


def summary_lines(found: Verification, printed: str) -> Iterator[str]:
    """Say how output and ledger compare, in lines for people."""
    if printed:
        ledger = "disagrees" if found.findings else "agrees"
        records = found.records + found.foreign - found.repeats - found.flagged
        yield (
            f"{printed}: {records:,} records, {found.repeats:,} repeats discarded,"
            f" {found.gaps:,} gaps; ledger: {ledger}"
        )
    else:
        yield f"{found.records:,} records and {found.batches:,} batches compared"
    for count, what in (
        (found.foreign, "records are of other writers"),
        (found.repeats, "records are repeats, which readers discard"),
        (found.flagged, "records are of a driver that was taken over, under another plan"),
        (found.other_lineages, "records are of before the pipeline lost its ledger"),
        (found.lost, "records are missing where the ledger names them as at risk"),
    ):
        if count:
            yield f"  {count} {what}"


def _recompute(path: Path, batch_id: int, settings: Settings, output: ResultFormat) -> None:
    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.recompute import Recomputation

    around = open_surroundings(settings, SystemClock())
    entry = Recomputation(load_allowed(path, settings), around).run(batch_id)
    written = entry.records.written
    fields = {"batch_id": batch_id, "records": written, "digest": entry.digest}
    text = f"batch {batch_id}: {written} records computed again, all equal"
    print_result(output, fields, text)


@group.command()
def rebuild(
    file: Annotated[Path, typer.Argument(help="The pipeline file: it names the checkpoint.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Reconstruct a lost `head` from the output and the checkpoint. Does not run the pipeline."""
    from onceflow.app import RunOptions
    from onceflow.cli.pipeline.run import open_application
    from onceflow.protocol.compare import Remedy

    def tell(event: str, /, **facts: object) -> None:
        if event == "warning":
            typer.echo(f"warning: {facts.get('text')}", err=True)

    options = RunOptions(remedy=Remedy.REBUILD, reason=reason)
    settings = settings_of(bootstrap_servers, config)
    head = open_application(load_allowed(file, settings), settings, options, tell).repair()
    batch_id, sequence = head.batch.batch_id, dict(head.sink.sequence)
    ends = ", ".join(f"{partition}: {last}" for partition, (_, last) in sorted(sequence.items()))
    text = f"rebuilt from batch {batch_id}; last sequence by partition: {ends}"
    print_result(output, {"batch_id": batch_id, "sequence": sequence}, text)


def print_table(history: Sequence[HeadEntry]) -> None:
    """Print one row for each commit."""
    from rich.table import Column, Table

    from onceflow.cli.shared.terminal import Terminal
    from onceflow.protocol.delivery import Delivery
    from onceflow.protocol.ledger import NOTHING_COMMITTED
    from onceflow.texts import time_text

    headings = ["batch", "gen", "token", "batch clock", "read", "late", "written", "digest"]
    # Only for pipelines with another mode than the usual one.
    is_usual = all(e.delivery is Delivery.EXACTLY_ONCE and not e.at_risk for e in history)
    columns = (Column(heading, no_wrap=True) for heading in headings)
    more = () if is_usual else ("delivery", "at risk")
    table = Table(*columns, "note", *more, box=None, padding=(0, 1, 0, 0))
    for entry in history:
        counts = entry.records
        table.add_row(
            "-" if entry.batch.batch_id == NOTHING_COMMITTED else str(entry.batch.batch_id),
            str(entry.generation),
            str(entry.token),
            time_text(entry.plan.batch_timestamp_ms),
            f"{counts.read:,}",
            f"{counts.late:,}",
            f"{counts.written:,}",
            entry.digest[:SHOWN_DIGEST],
            entry.note,
            *(() if is_usual else (entry.delivery.value, _at_risk_text(entry))),
        )
    Terminal().print(table)


def _at_risk_text(entry: HeadEntry) -> str:
    ranges = sorted(entry.at_risk.items())
    return ", ".join(f"{partition}: {first}-{last}" for partition, (first, last) in ranges)

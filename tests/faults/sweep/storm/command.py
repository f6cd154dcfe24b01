"""Shared by the commands of the storm and the load."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import typer

from onceflow.clock import SystemClock
from tests.faults.sweep.frozen import at_home
from tests.faults.sweep.storm.run import RESULT, Options, Report, Storm


def drawn(seed: int | None) -> int:
    """The seed that was given, or any."""
    return secrets.randbits(32) if seed is None else seed


def play(options: Options, title: str, again: str, folder: Path, json_file: Path | None) -> None:
    """Storm, show what came of it, and end with 1 unless it is clean."""
    clock = SystemClock()
    place = at_home(folder) / f"{title}-{options.seed}-{clock.unix_ms()}"
    typer.echo(f"again: {again}\nfolder: {place}")
    report = Storm(options, place, clock, typer.echo).run()
    show(report)
    if json_file is not None:
        shutil.copy(place / RESULT, at_home(json_file))
    if not report.is_clean:
        typer.echo(f"NOT CLEAN; evidence in {place}; again: {again}")
        raise typer.Exit(1)


def show(report: Report) -> None:
    """For people."""
    verdict = report.verdict
    typer.echo(
        f"{verdict.records} records, {verdict.rows} rows, {verdict.batches} batches:"
        f" {verdict.lost_records} lost, {verdict.repeated_records} repeated;"
        f" {verdict.input_repeats} repeats and {verdict.input_missing} losses in the input itself"
    )
    typer.echo(f"faults: {verdict.fired}, not fired: {verdict.not_fired or 'none'}")
    typer.echo(f"{verdict.starts} starts of the service, ends: {verdict.ends}")
    typer.echo(f"visible: {verdict.visible}; in quiet phases: {verdict.visible_in_quiet}")
    for anomaly in verdict.anomalies:
        typer.echo(f"ANOMALY {anomaly}")

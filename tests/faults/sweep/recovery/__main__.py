"""`python -m tests.faults.sweep.recovery`: how long a kill of the driver is felt."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from onceflow.clock import SystemClock
from tests.faults.sweep.frozen import at_home, run_frozen
from tests.faults.sweep.recovery.trial import Found, Trial
from tests.support.brokers.children import ChildProcessCluster

MODULE = "tests.faults.sweep.recovery"
FOLDER = Path("artifacts/faults")


def main(
    kills: Annotated[int, typer.Option(min=1, help="How often the driver is killed.")] = 20,
    keys: Annotated[int, typer.Option(min=1, help="In the state; 6,000 are about 1 MB.")] = 6_000,
    is_standing_by: Annotated[
        bool, typer.Option("--standby", help="The successor stands by, warmed up.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the instants; drawn if left out.")] = None,
    folder: Annotated[Path, typer.Option(help="A folder for this is made in it.")] = FOLDER,
    json_file: Annotated[Path | None, typer.Option("--json", help="For the result.")] = None,
) -> None:
    """Kill a driver at random instants; measure until its successor's first record is visible."""
    run_frozen(MODULE, folder)
    chosen = secrets.randbits(32) if seed is None else seed
    clock = SystemClock()
    place = at_home(folder) / f"recovery-{keys}-{clock.unix_ms()}"
    place.mkdir(parents=True)
    typer.echo(
        f"again: .venv/bin/python -m {MODULE} --kills {kills} --keys {keys} --seed {chosen}"
        f"{' --standby' if is_standing_by else ''}\n"
        f"folder: {place}"
    )
    with ChildProcessCluster() as cluster:
        trial = Trial(
            cluster.bootstrap_servers,
            place,
            keys,
            Random(chosen),
            clock,
            typer.echo,
            is_standing_by=is_standing_by,
        )
        found = trial.run(kills)
    (place / "recovery.json").write_text(found.to_json())
    if json_file is not None:
        at_home(json_file).write_text(found.to_json())
    show(found)
    if found.faults or len(found.recoveries) < kills:
        raise typer.Exit(1)


def show(found: Found) -> None:
    typer.echo(f"{found.state_rows} rows of state, {found.state_bytes / 1e6:.1f} MB with history")
    for name, each in found.summary.items():
        typer.echo(
            f"{name:20} median {each.median_s:5.1f} s  p95 {each.p95_s:5.1f} s"
            f"  worst {each.worst_s:5.1f} s"
        )
    for fault in found.faults:
        typer.echo(f"ANOMALY {fault}")


if __name__ == "__main__":
    typer.run(main)

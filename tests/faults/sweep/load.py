"""`python -m tests.faults.sweep.load`: 10,000 records a second while faults happen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tests.faults.sweep.frozen import run_frozen
from tests.faults.sweep.storm.command import drawn, play
from tests.faults.sweep.storm.draw import KINDS
from tests.faults.sweep.storm.run import Options

MODULE = "tests.faults.sweep.load"
FOLDER = Path("artifacts/faults")
MAX_RECORDS_PER_BATCH = 200_000
"""A driver that was away for half a minute catches up in two batches."""


def main(
    seed: Annotated[int | None, typer.Option(help="Of the faults; drawn if left out.")] = None,
    seconds: Annotated[float, typer.Option(min=10, help="How long.")] = 600,
    every: Annotated[float, typer.Option(min=1, help="Seconds between faults, on average.")] = 20,
    rate: Annotated[int, typer.Option(min=1, help="Input records per second.")] = 10_000,
    folder: Annotated[Path, typer.Option(help="A folder for this load is made in it.")] = FOLDER,
    json_file: Annotated[Path | None, typer.Option("--json", help="For the result.")] = None,
) -> None:
    """The storm without its quiet phases, under load."""
    run_frozen(MODULE, folder)
    options = Options(
        seed=drawn(seed),
        seconds=seconds,
        every_s=every,
        quiet_every_s=seconds,
        rate=rate,
        kinds=KINDS,
        max_records_per_batch=MAX_RECORDS_PER_BATCH,
    )
    again = f".venv/bin/python -m {MODULE} --seed {options.seed} --seconds {seconds:g}"
    again += f" --every {every:g} --rate {rate}"
    play(options, "load", again, folder, json_file)


if __name__ == "__main__":
    typer.run(main)

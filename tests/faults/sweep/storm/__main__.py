"""`python -m tests.faults.sweep.storm`: one storm; ends with 1 unless it is clean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tests.faults.sweep.frozen import run_frozen
from tests.faults.sweep.storm.command import drawn, play
from tests.faults.sweep.storm.draw import KINDS, chosen
from tests.faults.sweep.storm.run import Options

MODULE = "tests.faults.sweep.storm"
FOLDER = Path("artifacts/faults")


def main(  # noqa: PLR0917  options of a command line
    seed: Annotated[int | None, typer.Option(help="Of the faults; drawn if left out.")] = None,
    seconds: Annotated[float, typer.Option(min=10, help="How long it storms.")] = 3600,
    every: Annotated[float, typer.Option(min=1, help="Seconds between faults, on average.")] = 20,
    rate: Annotated[int, typer.Option(min=1, help="Input records per second.")] = 500,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Kinds: {', '.join(k.name for k in KINDS)}.")
    ] = None,
    quiet_every: Annotated[float, typer.Option(min=30, help="Seconds of storm, then quiet.")] = 300,
    folder: Annotated[Path, typer.Option(help="A folder for this storm is made in it.")] = FOLDER,
    json_file: Annotated[Path | None, typer.Option("--json", help="For the result.")] = None,
) -> None:
    """Storm over three brokers and the real service, then check every record."""
    run_frozen(MODULE, folder)
    options = Options(
        seed=drawn(seed),
        seconds=seconds,
        every_s=every,
        quiet_every_s=quiet_every,
        rate=rate,
        kinds=chosen(only or []),
    )
    again = f".venv/bin/python -m {MODULE} --seed {options.seed} --seconds {seconds:g}"
    again += f" --every {every:g} --rate {rate} --quiet-every {quiet_every:g}"
    again += "".join(f" --only {name}" for name in only or [])
    play(options, "storm", again, folder, json_file)


if __name__ == "__main__":
    typer.run(main)

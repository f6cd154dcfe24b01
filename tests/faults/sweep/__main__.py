"""`python -m tests.faults.sweep`: everything that a sceptic could ask for, resumable.

Ends with 1 if anything failed, or if a result that was asked for is missing.
"""

from __future__ import annotations

import fcntl
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from onceflow.clock import SystemClock
from tests.faults.matrix import ROWS
from tests.faults.row import Row
from tests.faults.sweep.frozen import at_home, current_code, run_frozen
from tests.faults.sweep.results import Outcome, Result, What
from tests.faults.sweep.runs import Part, Runs

FOLDER = Path("artifacts/faults")
STORM_SEED = 1
LOAD_SEED = 2
RECOVERY_SEED = 3
RECOVERY_KEYS = {"1 MB": 6_000, "50 MB": 300_000}


def main(  # noqa: PLR0917  options of a command line
    seeds: Annotated[int, typer.Option(min=0, help="Of each row.")] = 20,
    first: Annotated[int, typer.Option(min=1, help="The first seed.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Rows; then nothing else runs.")] = None,
    storm: Annotated[float, typer.Option(min=0, help="Seconds; 0 leaves it out.")] = 3600,
    load: Annotated[float, typer.Option(min=0, help="Seconds; 0 leaves it out.")] = 600,
    kills: Annotated[int, typer.Option(min=0, help="For recovery; 0 leaves it out.")] = 20,
    mutants: Annotated[bool, typer.Option(help="Break the product on purpose.")] = True,
    workers: Annotated[int, typer.Option(min=1, help="Tests at a time.")] = 3,
    folder: Annotated[Path, typer.Option(help="Results are kept and found here.")] = FOLDER,
) -> None:
    """Play every row with many seeds, a storm, a load under faults, recovery and mutants.

    May be stopped at any time. The same command goes on where it was, as long as the code is the
    same; a part that was cut off begins again.
    """
    run_frozen("tests.faults.sweep", folder)
    signal.signal(signal.SIGTERM, _interrupt)
    rows = chosen_rows(only or [])
    parts = [] if only else list(chosen_parts(storm, load, kills, mutants, folder))
    runs = Runs(at_home(folder), SystemClock(), workers)
    typer.echo(f"code {current_code()}, results in {runs.file}")
    tests = {}
    with locked(at_home(folder), "rows"):
        for seed in range(first, first + seeds):
            drawn = tests[seed] = runs.collect(rows, seed)
            missing = runs.missing(drawn, seed)
            typer.echo(f"seed {seed}: {len(missing)} of {len(drawn)} tests to run")
            if missing:
                runs.play(rows, drawn, seed)
    for part in parts:
        with locked(at_home(folder), part.what.value):
            typer.echo(f"{part.what.value}: {'is there' if runs.has(part) else part.again}")
            if not runs.has(part):
                runs.run(part)
    missing_parts = [part.again for part in parts if not runs.has(part)]
    not_run = [
        f"{t} seed {seed}" for seed, drawn in tests.items() for t in runs.missing(drawn, seed)
    ]
    failed = [result for result in runs.results() if result.outcome is Outcome.FAILED]
    sys.exit(summary(failed, missing_parts + not_run, len(runs.results())))


def chosen_rows(names: Sequence[str]) -> Sequence[Row]:
    known = {row.row_id: row for row in ROWS}
    if unknown := sorted(set(names) - known.keys()):
        raise typer.BadParameter(f"no such row: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or ROWS


def chosen_parts(
    storm: float, load: float, kills: int, mutants: bool, folder: Path
) -> Iterator[Part]:
    """Choose what runs besides the rows; 0 leaves a part out."""
    place = ["--folder", str(at_home(folder))]
    if storm:
        yield _part(What.STORM, f"{storm:g} s", STORM_SEED, ["--seconds", f"{storm:g}", *place])
    if load:
        yield _part(What.LOAD, f"{load:g} s", LOAD_SEED, ["--seconds", f"{load:g}", *place])
    for size, keys in RECOVERY_KEYS.items() if kills else ():
        arguments = ["--kills", str(kills), "--keys", str(keys), *place]
        yield _part(What.RECOVERY, size, RECOVERY_SEED, arguments)
    if mutants:
        yield Part(What.MUTANTS, "all", 0, "tests.faults.mutants", [])


def summary(failed: Sequence[Result], missing: Sequence[str], count: int) -> int:
    """Say what is wrong, each with the line that repeats it; returns the exit code."""
    typer.echo(f"{count} results, {len(failed)} failed, {len(missing)} missing")
    for result in failed:
        typer.echo(f"FAILED {result.name}, seed {result.seed}\n  again: {result.again}")
    for what in missing:
        typer.echo(f"NOT RUN {what}")
    return 1 if failed or missing else 0


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Two sweeps in one folder would run the same; they may do different things."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"lock-{what}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            typer.echo(f"another sweep runs {what} in {folder}")
            raise typer.Exit(1) from None
        yield


def _part(what: What, name: str, seed: int, arguments: Sequence[str]) -> Part:
    module = f"tests.faults.sweep.{what.value}"
    return Part(what, name, seed, module, ["--seed", str(seed), *arguments])


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(main)

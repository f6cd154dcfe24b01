"""`python -m bench`: measure, check, show. Ends with the exit codes of `onceflow.errors`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import engines as ours
from bench import peers
from bench.engines import ONCEFLOW, Engine
from bench.report import Report, describe_machine, to_markdown
from bench.runs import Laboratory, Sizes
from bench.show import draw_picture, show_table
from bench.workload import Oracle, Workload
from onceflow.clock import SystemClock
from onceflow.devkit.dev_broker import temporary_broker
from onceflow.errors import OnceflowError

WARM_UP_SHARE = 0.25
"""The first quarter of a backlog runs at half speed: the JVM compiles."""

OF_BACKLOG = (*ours.OF_BACKLOG, *peers.OF_BACKLOG)
PACED = (*ours.PACED, *peers.PACED)

console = Console()


def measure(  # noqa: PLR0913, PLR0917  options of a command line
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each engine, in turn.")] = 3,
    records: Annotated[int, typer.Option(min=0, help="Backlog; 0 leaves it out.")] = 8_000_000,
    max_records_per_batch: Annotated[int, typer.Option(min=1, help="Of either engine.")] = 500_000,
    rate: Annotated[int, typer.Option(min=1, help="Records per second.")] = 1_000,
    warm_up_s: Annotated[float, typer.Option(min=0, help="Before latency counts.")] = 120,
    latency_s: Annotated[
        float, typer.Option(min=0, help="Seconds of latency that count; 0 skips the measurement.")
    ] = 60,
    memory_s: Annotated[
        float, typer.Option(min=0, help="Seconds of memory measurement; 0 skips it.")
    ] = 600,
    keys: Annotated[int, typer.Option(min=1, help="Number of different keys.")] = 1_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of input and output.")] = 4,
    engines: Annotated[
        list[str] | None, typer.Option("--engine", help="Only this one; may be repeated.")
    ] = None,
    with_peers: Annotated[
        bool, typer.Option("--peers", help="Kafka Streams and Flink, not Spark; needs a JDK.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("artifacts"),
) -> None:
    """Compare throughput, latency, CPU and memory with Spark's own connector, or with peers.

    A smoke run: --rounds 1 --records 400000 --max-records-per-batch 50000 --latency-s 15
    --warm-up-s 15 --memory-s 0
    """
    names = {engine.name for engine in (*OF_BACKLOG, *PACED)}
    usual = peers.COMPARED if with_peers else (*ours.OF_BACKLOG, *ours.PACED)
    chosen = set(engines) if engines else {engine.name for engine in usual}
    if unknown := chosen - names:
        raise typer.BadParameter(f"there is no {min(unknown)}; expected {', '.join(sorted(names))}")
    sizes = Sizes(
        records, WARM_UP_SHARE, max_records_per_batch, rate, warm_up_s, latency_s, memory_s
    )
    report = Report(describe_machine(), Workload(keys, partitions), sizes)
    clock = SystemClock()
    with temporary_broker(clock) as bootstrap_servers:
        laboratory = Laboratory(bootstrap_servers, report.workload, sizes, clock)
        for what, step in steps(laboratory, report, rounds, chosen):
            console.print(what, style="dim")
            step()
            write(report, folder)
    show_table(report, console)


def steps(
    laboratory: Laboratory, report: Report, rounds: int, chosen: Collection[str]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each step, in order: the chosen engines take turns, also at being the first."""
    sizes = report.sizes

    def add_throughput(engine: Engine, backlog: tuple[str, Oracle]) -> None:
        found = laboratory.measure_throughput(engine, *backlog)
        report.throughput.setdefault(engine.name, []).append(found)

    def add_latency(engine: Engine) -> None:
        report.latency.setdefault(engine.name, []).append(laboratory.measure_latency(engine))

    def add_memory() -> None:
        report.memory = laboratory.measure_memory(ONCEFLOW)

    if sizes.backlog_records:
        backlog = laboratory.write_backlog()
        for engine in in_turns([each for each in OF_BACKLOG if each.name in chosen], rounds):
            yield f"throughput of {engine.name}", partial(add_throughput, engine, backlog)
    if sizes.latency_s:
        for engine in in_turns([each for each in PACED if each.name in chosen], rounds):
            yield f"latency of {engine.name}", partial(add_latency, engine)
    if sizes.memory_s:
        yield f"memory of {ONCEFLOW.name}", add_memory


def in_turns(engines: Sequence[Engine], rounds: int) -> Iterator[Engine]:
    """Forwards and backwards, so that none is always the first."""
    for number in range(rounds):
        yield from engines if number % 2 == 0 else reversed(engines)


def write(report: Report, folder: Path) -> None:
    """Write what was found so far: figures, table and picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
    (folder / "bench.md").write_text(to_markdown(report), encoding="utf-8")
    draw_picture(report, folder / "bench.png")


def main() -> None:
    """Run the command line."""
    try:
        typer.run(measure)
    except OnceflowError as error:
        typer.echo(f"bench: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

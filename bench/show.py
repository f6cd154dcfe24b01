"""The same report on a terminal and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from bench.engines import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    COUNTS,
    EAGER,
    FILTER,
    ONCEFLOW,
    PROCESSOR,
    SPARK,
)
from bench.peers import FLINK, FLINK_FILTER, FLINK_ROCKSDB, STREAMS, STREAMS_FILTER
from bench.report import Report, sections, verdict

COLOURS = {
    ONCEFLOW.name: "#1b7f79",
    EAGER.name: "#3a6ea5",
    COUNTS.name: "#c79a3b",
    PROCESSOR.name: "#8a5a9e",
    AT_LEAST_ONCE.name: "#7aa86f",
    AT_MOST_ONCE.name: "#b5b35c",
    SPARK.name: "#c8553d",
    FILTER.name: "#1b7f79",
    STREAMS.name: "#8a5a9e",
    STREAMS_FILTER.name: "#8a5a9e",
    FLINK.name: "#c79a3b",
    FLINK_FILTER.name: "#c79a3b",
    FLINK_ROCKSDB.name: "#b5b35c",
}


def show_table(report: Report, console: Console) -> None:
    """Print the table."""
    table = Table(title="onceflow and others")
    for name in ("", "ours", "the other", "ratio", "goal", "reached"):
        table.add_column(name, justify="left" if not name else "right")
    for title, rows in sections(report):
        table.add_section()
        table.add_row(f"[bold]{title}[/bold]")
        for row in rows:
            table.add_row(row.label, row.ours, row.theirs, row.ratio, row.goal, verdict(row))
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in report.machine.items()))


def draw_picture(report: Report, file: Path) -> None:
    """Write a PNG with whatever was measured."""
    panels = [
        draw
        for draw, is_there in (
            (_draw_throughput, bool(report.throughput)),
            (_draw_cpu, bool(report.throughput)),
            (_draw_latency, bool(report.latency)),
            (_draw_memory, report.memory is not None),
        )
        if is_there
    ]
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    figure = Figure(figsize=(3.4 * len(panels), 3.4), layout="constrained")
    for number, draw in enumerate(panels, start=1):
        draw(figure.add_subplot(1, len(panels), number), report)
    figure.savefig(file, dpi=150)


def _draw_throughput(axes: Axes, report: Report) -> None:
    axes.set_title("thousand records/s")
    _bars(axes, {n: [r.records_per_s / 1e3 for r in runs] for n, runs in report.throughput.items()})


def _draw_cpu(axes: Axes, report: Report) -> None:
    axes.set_title("CPU s per million records")
    _bars(axes, {n: [r.cpu_s_per_million for r in runs] for n, runs in report.throughput.items()})


def _bars(axes: Axes, runs: dict[str, list[float]]) -> None:
    """The mean of each engine as a bar, every run as a dot."""
    for place, (name, values) in enumerate(runs.items()):
        axes.bar(place, sum(values) / len(values), 0.6, color=COLOURS[name], alpha=0.75)
        axes.plot([place] * len(values), values, "o", color="black", markersize=3)
    axes.set_xticks(range(len(runs)), [name.replace("-", "\n", 1) for name in runs])


def _draw_latency(axes: Axes, report: Report) -> None:
    axes.set_title(f"latency at {report.sizes.rate:,} records/s, ms")
    for number, (name, runs) in enumerate(report.latency.items()):
        for run in runs:
            _line(axes, [run.p50_ms, run.p95_ms, run.p99_ms], COLOURS[name])
        cores = sum(run.cores for run in runs) / len(runs)
        axes.text(
            0.03, 0.95 - 0.08 * number, f"{name}: {cores:.2f} cores",
            color=COLOURS[name], transform=axes.transAxes,
        )  # fmt: skip
    axes.set_xticks(range(3), ["p50", "p95", "p99"])
    axes.set_ylim(bottom=0)


def _line(axes: Axes, values: Sequence[float], colour: str) -> None:
    axes.plot(range(len(values)), values, "o-", color=colour, markersize=3, linewidth=1)


def _draw_memory(axes: Axes, report: Report) -> None:
    if report.memory is None:
        return
    axes.set_title("memory of onceflow, MB")
    axes.plot(*zip(*report.memory.rss_mb, strict=True), color=COLOURS[ONCEFLOW.name])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")

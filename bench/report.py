"""The results of a benchmark, and their table: one row for each figure, with its goal."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.engines import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    COUNTS,
    EAGER,
    FILTER,
    ONCEFLOW,
    PROCESSOR,
    SPARK,
    Engine,
)
from bench.figures import Latency, Memory, Throughput
from bench.peers import COUNTING, FILTERING
from bench.peers import PACED as PACED_PEERS
from bench.runs import Sizes
from bench.workload import Workload
from onceflow.devkit.jars import jar_set
from onceflow.java.choice import find_java


def describe_machine() -> Mapping[str, str]:
    """Where the figures come from; without names of hosts or users."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    brokers = [name for name in jar_set("broker").sha256 if name.startswith("kafka_")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "java": str(find_java().version),
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "broker": brokers[0].removesuffix(".jar"),
    }


@dataclass
class Report:
    """Everything that one benchmark found. Runs are in the order in which they took place."""

    machine: Mapping[str, str]
    workload: Workload
    sizes: Sizes
    throughput: dict[str, list[Throughput]] = field(default_factory=dict)
    latency: dict[str, list[Latency]] = field(default_factory=dict)
    memory: Memory | None = None


@dataclass(frozen=True)
class Row:
    """One figure of both engines.

    Args:
        ours: median of the runs, and their range.
        goal: what was aimed at; empty if nothing.
    """

    label: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    goal: str = ""
    is_reached: bool | None = None


@dataclass(frozen=True)
class _Figure:
    """How a row is made: `goal` is on the ratio, `own_goal` on our figure alone."""

    label: str
    of: Callable[[Any], float]
    decimals: int = 0
    at_least: float | None = None
    at_most: float | None = None
    ours_at_most: float | None = None
    ours_at_least: float | None = None

    def row(self, ours: Sequence[Any], theirs: Sequence[Any]) -> Row:
        mine, other = [self.of(run) for run in ours], [self.of(run) for run in theirs]
        ratio = median(mine) / median(other) if mine and other else None
        goals = {
            f"ratio ≥ {self.at_least}": (ratio, self.at_least, 1),
            f"ratio ≤ {self.at_most}": (ratio, self.at_most, -1),
            f"≤ {self.ours_at_most}": (median(mine), self.ours_at_most, -1),
            f"≥ {self.ours_at_least:,}" if self.ours_at_least else "": (
                median(mine),
                self.ours_at_least,
                1,
            ),
        }
        set_goals = {
            text: (found is not None and (found - bound) * sign >= 0)
            for text, (found, bound, sign) in goals.items()
            if bound is not None
        }
        return Row(
            self.label,
            self._text(mine),
            self._text(other) if other else "",
            f"{ratio:.2f}" if ratio else "",
            ", ".join(set_goals),
            all(set_goals.values()) if set_goals else None,
        )

    def _text(self, values: Sequence[float]) -> str:
        low, middle, high = (
            f"{value:,.{self.decimals}f}" for value in (min(values), median(values), max(values))
        )
        return middle if low == high else f"{middle} ({low} to {high})"


_THROUGHPUT = (
    _Figure("records/s", lambda run: run.records_per_s, at_least=1.5),
    _Figure("CPU s per million records", lambda run: run.cpu_s_per_million, 2, at_most=0.75),
    _Figure("peak memory, MB", lambda run: run.peak_rss_mb),
)


_PRICE = (
    _Figure("records/s", lambda run: run.records_per_s),
    _Figure("CPU s per million records", lambda run: run.cpu_s_per_million, 2),
)


_BY_PROCESSOR = (
    _Figure("records/s", lambda run: run.records_per_s, ours_at_least=100_000),
    _Figure("CPU s per million records", lambda run: run.cpu_s_per_million, 2),
)


_PEERS = (*_PRICE, _Figure("peak memory, MB", lambda run: run.peak_rss_mb))


def _latency(
    ratio: float | None = None, p50_ms: float | None = None, cores: float | None = None
) -> tuple[_Figure, ...]:
    return (
        _Figure("latency p50, ms", lambda run: run.p50_ms, at_most=ratio, ours_at_most=p50_ms),
        _Figure("latency p95, ms", lambda run: run.p95_ms),
        _Figure("latency p99, ms", lambda run: run.p99_ms, at_most=ratio),
        _Figure("cores used", lambda run: run.cores, 2, ours_at_most=cores),
        _Figure("peak memory, MB", lambda run: run.peak_rss_mb),
    )


FLAT = 1.05
"""Memory late in a run by memory early in it, up to which it counts as flat."""


def sections(report: Report) -> list[tuple[str, list[Row]]]:
    """The table, in parts with a title each; parts that were not measured are left out."""
    sizes, found = report.sizes, []
    backlog = f"backlog of {sizes.backlog_records:,} records"
    filtered = f"nine of ten of a {backlog}"
    paced = f"{sizes.rate:,} records/s, updates"
    at_once, waiting = f"{paced}, as soon as possible", f"{paced}, our default trigger"
    of_default = _latency(p50_ms=300, cores=0.6)
    parts: list[tuple[str, Sequence[_Figure], Mapping[str, Sequence[Any]], Engine, Engine]] = [
        (backlog, _THROUGHPUT, report.throughput, ONCEFLOW, SPARK),
        (at_once, _latency(ratio=1.25), report.latency, EAGER, SPARK),
        (waiting, of_default, report.latency, ONCEFLOW, SPARK),
        (backlog, _PRICE, report.throughput, ONCEFLOW, AT_LEAST_ONCE),
        (backlog, _PRICE, report.throughput, ONCEFLOW, AT_MOST_ONCE),
        (backlog, _BY_PROCESSOR, report.throughput, PROCESSOR, COUNTS),
        (paced, _latency(ratio=1.5), report.latency, PROCESSOR, COUNTS),
        *((backlog, _PEERS, report.throughput, ONCEFLOW, other) for other in COUNTING),
        *((filtered, _PEERS, report.throughput, FILTER, other) for other in FILTERING),
        *((at_once, _latency(), report.latency, EAGER, other) for other in PACED_PEERS),
        *((waiting, _latency(), report.latency, ONCEFLOW, other) for other in PACED_PEERS),
    ]
    for title, figures, runs, engine, other in parts:
        # Without Spark's pair, its part shows ours alone.
        if engine.name in runs and (other.name in runs or other is SPARK):
            ours, theirs = runs[engine.name], runs.get(other.name, [])
            rows = [figure.row(ours, theirs) for figure in figures]
            found.append((f"{title}: {engine.name} and {other.name}" if theirs else title, rows))
    if report.memory is not None:
        found.append((f"memory over {sizes.memory_s:,.0f} s", _memory_rows(report.memory)))
    return found


def _memory_rows(found: Memory) -> list[Row]:
    growth = found.late_mb / found.early_mb
    return [
        Row("early in the run, MB", f"{found.early_mb:,.0f}"),
        Row("late in the run, MB", f"{found.late_mb:,.0f}"),
        Row("late by early", f"{growth:.2f}", goal=f"≤ {FLAT}", is_reached=growth <= FLAT),
    ]


def to_markdown(report: Report) -> str:
    """The table for a document."""
    lines = [
        "| | ours | the other | ratio | goal | reached |",
        "|---|---|---|---|---|---|",
    ]
    for title, rows in sections(report):
        lines.append(f"| **{title}** | | | | | |")
        for row in rows:
            cells = (row.label, row.ours, row.theirs, row.ratio, row.goal, verdict(row))
            lines.append(f"| {' | '.join(cells)} |")
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    return "\n".join([*lines, "", f"Machine: {machine}.", ""])


def verdict(row: Row) -> str:
    """Whether the goal was reached, in a word."""
    return {True: "yes", False: "no", None: ""}[row.is_reached]

"""The benchmark's table and pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from bench.__main__ import write
from bench.figures import Latency, Memory, Throughput
from bench.report import Report, sections, to_markdown
from bench.runs import Sizes
from bench.show import show_chart, show_table
from bench.workload import Workload

SIZES = Sizes(
    backlog_records=1_000,
    warm_up_share=0.25,
    max_records_per_batch=100,
    rate=1_000,
    warm_up_s=1,
    latency_s=1,
    memory_s=10,
)


def report() -> Report:
    found = Report({"cores": "2"}, Workload(10, 2), SIZES)
    found.throughput = {
        "onceflow": [Throughput(300_000, 3.0, 900), Throughput(330_000, 3.1, 900)],
        "onceflow-at-least-once": [Throughput(350_000, 2.9, 900)],
        "spark": [Throughput(200_000, 4.0, 900), Throughput(210_000, 4.4, 900)],
    }
    found.latency = {
        "onceflow": [Latency(250, 300, 400, 0.5, 800, 100)],
        "onceflow-eager": [Latency(230, 250, 310, 1.0, 800, 100)],
        "spark": [Latency(180, 250, 300, 1.2, 800, 100)],
    }
    found.memory = Memory([(1.0, 700.0), (2.0, 800.0)], 700.0, 800.0)
    return found


def verdicts() -> list[dict[str, bool | None]]:
    return [{row.label: row.is_reached for row in rows} for _, rows in sections(report())]


def test_goals_are_judged_by_ratio_or_by_our_own_figure() -> None:
    assert verdicts() == [
        {
            "records/s": True,
            "CPU s per million records": True,
            "peak memory, MB": None,
        },
        {
            "latency p50, ms": False,  # 1.28 of the other's
            "latency p95, ms": None,
            "latency p99, ms": True,  # 1.03
            "cores used": None,
            "peak memory, MB": None,
        },
        {
            "latency p50, ms": True,  # below 300, whatever the other's is
            "latency p95, ms": None,
            "latency p99, ms": None,
            "cores used": True,
            "peak memory, MB": None,
        },
        {"records/s": None, "CPU s per million records": None},
        {
            "early in the run, MB": None,
            "late in the run, MB": None,
            "late by early": False,
        },
    ]


def test_the_table_tells_medians_ranges_and_the_machine() -> None:
    table = to_markdown(report())

    assert "315,000 (300,000 to 330,000)" in table
    assert "| 1.54 |" in table
    assert "| **the same backlog, exactly once against at least once** | | | | | |" in table
    assert "| records/s | 315,000 (300,000 to 330,000) | 350,000 | 0.90 |  |  |" in table
    assert "Machine: cores 2." in table


def test_what_was_not_measured_is_left_out() -> None:
    found = Report({}, Workload(10, 2), SIZES)

    assert sections(found) == []


def test_results_are_written_as_figures_table_and_picture(tmp_path: Path) -> None:
    write(report(), tmp_path / "new")

    assert json.loads((tmp_path / "new/bench.json").read_text())["sizes"]["rate"] == 1_000
    assert (tmp_path / "new/bench.md").read_text() == to_markdown(report())
    assert (tmp_path / "new/bench.png").read_bytes().startswith(b"\x89PNG")


def test_a_terminal_shows_the_table_and_the_charts() -> None:
    out = io.StringIO()
    console = Console(file=out, width=140)

    show_table(report(), console)
    show_chart(report(), console)

    assert "cores used" in out.getvalue()
    assert "thousand records/s" in out.getvalue()
    assert "memory ▇█ MB" in out.getvalue()

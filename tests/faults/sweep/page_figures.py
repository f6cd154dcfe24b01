"""The parts of the page that are figures: storm, load, recovery, mutants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.faults.sweep.results import Outcome

NOT_RUN = "not run"
REACH_S = 15.0
"""What the project set out to reach: 95 of 100 kills."""
Figures = Mapping[str, Any]


def recovery_lines(parts: Sequence[Figures]) -> Iterator[str]:
    """Lines for every size of state."""
    if not parts:
        yield NOT_RUN
    for part in parts:
        yield from _recovery(part)


def mutant_lines(parts: Sequence[Figures]) -> Iterator[str]:
    """Lines for the newest run."""
    lines = _lines_of(parts[-1]["figures"]) if parts else []
    told = [line for line in lines if "mutant" in line]
    if not told:
        yield NOT_RUN
        return
    caught = sum(line["verdict"] == "caught" for line in told)
    yield f"{caught} of {len(told)} caught; code `{parts[-1]['code']}`.\n"
    yield "| mutant | verdict | caught by |"
    yield "|---|---|---|"
    for line in told:
        catchers = [_short(t["test"]) for t in line["tests"] if t["says"] is not None]
        verdict = line["verdict"] if line["verdict"] == "caught" else f"**{line['verdict']}**"
        yield f"| {line['what']} | {verdict} | {', '.join(catchers) or '-'} |"


def storm_lines(parts: Sequence[Figures]) -> Iterator[str]:
    """Lines for every storm, or load, that was run."""
    if not parts:
        yield NOT_RUN
    for part in parts:
        figures = part["figures"]
        if not figures:
            yield f"**Seed {part['seed']}, code `{part['code']}`: no result.** {part['says']}\n"
            continue
        verdict = figures["verdict"]
        clean = "clean" if part["outcome"] == Outcome.PASSED else "**NOT CLEAN**"
        yield (
            f"Seed {part['seed']}, {figures['seconds']:g} s, a fault every"
            f" {figures['every_s']:g} s, {figures['rate']:,} records/s, code `{part['code']}`:"
            f" {clean}.\n"
        )
        yield "| | |"
        yield "|---|---|"
        yield from (f"| {name} | {value} |" for name, value in _storm_rows(verdict))
        yield ""
        yield from (f"- anomaly: {text[:300]}" for text in verdict["anomalies"][:5])
        yield f"Again: `{part['again']}`\n"


def _storm_rows(verdict: Figures) -> Iterator[tuple[str, str]]:
    fired = verdict["fired"]
    yield "input records", f"{verdict['records']:,}"
    yield "**lost**", str(verdict["lost_records"])
    yield "**repeated**", str(verdict["repeated_records"])
    yield "output rows, batches", f"{verdict['rows']:,}, {verdict['batches']:,}"
    yield "anomalies", str(len(verdict["anomalies"]))
    yield "faults that fired", f"{sum(fired.values())}: " + _counts(fired)
    yield "faults that did not fire", str(len(verdict["not_fired"]))
    yield "starts of the service", str(verdict["starts"])
    yield "its ends, by exit code", _counts(verdict["ends"])
    yield "from a window's end to its row, at all times", _latency(verdict["visible"])
    yield "the same in quiet phases", _latency(verdict["visible_in_quiet"])
    yield (
        "repeats, losses in the input itself",
        f"{verdict['input_repeats']}, {verdict['input_missing']}",
    )


def _recovery(part: Figures) -> Iterator[str]:
    figures = part["figures"]
    if not figures:
        yield f"**{part['name']} of state: no result.** {part['says']}\n"
        return
    yield (
        f"State of {part['name']} ({figures['state_rows']:,} keys,"
        f" {figures['state_bytes'] / 1e6:.1f} MB in the checkpoint, compressed),"
        f" {len(figures['recoveries'])} kills, seed {part['seed']}, code `{part['code']}`:\n"
    )
    yield "| seconds | median | p95 | worst |"
    yield "|---|---|---|---|"
    for name, each in figures["summary"].items():
        told = f"{each['median_s']:.1f} | {each['p95_s']:.1f} | {each['worst_s']:.1f}"
        yield f"| {name} | {told} |"
    yield ""
    p95_s = figures["summary"]["kill to visible"]["p95_s"]
    yield f"The aim is {'met' if p95_s <= REACH_S else '**not met**'}.\n"
    if figures["faults"]:
        yield f"**Not clean: {figures['faults'][0]}**\n"
    yield f"Again: `{part['again']}`\n"


def _latency(told: Figures | None) -> str:
    if told is None:
        return NOT_RUN
    return f"median {told['median_ms'] / 1000:.1f} s, worst {told['worst_ms'] / 1000:.1f} s"


def _counts(told: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in told.items()) or "-"


def _lines_of(figures: Figures) -> Sequence[Figures]:
    lines: Sequence[Figures] = figures.get("lines", [figures] if figures else [])
    return lines


def _short(test: str) -> str:
    return f"`{test.rpartition('::')[2]}`"

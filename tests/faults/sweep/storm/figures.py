"""Figures of a storm: anomalies, counts and latencies, from what was recorded. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.faults.sweep.storm.player import Played
from tests.faults.sweep.storm.workload import LATENESS_MS, WINDOW_MS, Cell, Row

MAX_SHOWN = 20
"""Pieces of evidence of one kind in a report; all of it is in the folder."""


@dataclass
class Difference:
    """Output against oracle.

    Args:
        lost_records: input records that no row counts.
        repeated_records: input records that rows count more often than the log has them.
        texts: each window that differs.
    """

    lost_records: int = 0
    repeated_records: int = 0
    texts: list[str] = field(default_factory=list)


def differences(expected: Mapping[Cell, Row], found: Sequence[tuple[Cell, Row]]) -> Difference:
    """Compare each window with all rows that were written of it."""
    result = Difference()
    rows: dict[Cell, list[Row]] = {}
    for cell, row in found:
        rows.setdefault(cell, []).append(row)
    for cell in sorted(expected.keys() | rows.keys()):
        wanted, got = expected.get(cell), rows.get(cell, [])
        if [wanted] == got:
            continue
        counted = sum(row.views for row in got) - (wanted.views if wanted else 0)
        result.lost_records += max(0, -counted)
        result.repeated_records += max(0, counted)
        result.texts.append(f"{cell[0]} at {cell[1]}: expected {wanted}, found {got}")
    return result


@dataclass(frozen=True)
class Latency:
    """Milliseconds from when a window could close to when its row was first visible."""

    rows: int
    median_ms: float
    worst_ms: float


def closed_at(marks: Sequence[tuple[int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """Wall clock, and the newest event time that was in the input by then; both rising."""
    return [at_ms for at_ms, _ in marks], [event_ms for _, event_ms in marks]


def latencies(
    marks: Sequence[tuple[int, int]], first_seen_ms: Mapping[Cell, int]
) -> list[tuple[int, int]]:
    """When each window could close, by the wall clock, and how long its row then took."""
    at_ms, event_ms = closed_at(marks)
    found = []
    for (_, start), seen_ms in first_seen_ms.items():
        place = bisect_left(event_ms, start + WINDOW_MS + LATENESS_MS)
        # The last windows are closed by the end of the input, which no mark is of.
        if place < len(at_ms):
            found.append((at_ms[place], max(0, seen_ms - at_ms[place])))
    return found


def latency(
    taken: Iterable[tuple[int, int]], within: Sequence[tuple[int, int]] | None = None
) -> Latency | None:
    """Summarise all windows, or those that could close within one of these times."""
    chosen = [
        took
        for closed_ms, took in taken
        if within is None or any(begin <= closed_ms < end for begin, end in within)
    ]
    return Latency(len(chosen), median(chosen), max(chosen)) if chosen else None


def counts(played: Iterable[Played]) -> tuple[dict[str, int], list[str]]:
    """How often each kind fired, and which faults did not."""
    played = list(played)
    fired = Counter(each.kind for each in played if each.has_fired)
    missed = [f"#{each.number} {each.kind}: {each.failure}" for each in played if each.failure]
    return dict(sorted(fired.items())), missed

"""From what was observed to figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.workload import Cell, Result
from onceflow.errors import DeadlineError, require


@dataclass(frozen=True)
class Mark:
    """The state of an engine at the end of a batch.

    Args:
        records: read since the start.
        at_s: on the monotonic clock.
        cpu_s: used since the start by the engine's whole process tree.
    """

    records: int
    at_s: float
    cpu_s: float


@dataclass(frozen=True)
class Throughput:
    """One run over a backlog, without its warm-up."""

    records_per_s: float
    cpu_s_per_million: float
    peak_rss_mb: float


@dataclass(frozen=True)
class Latency:
    """One run at a fixed rate, without its warm-up.

    The percentiles are of the time from producing a record to its effect being visible to a
    read_committed reader; `cores` are CPU seconds of the engine's process tree per second.
    """

    p50_ms: float
    p95_ms: float
    p99_ms: float
    cores: float
    peak_rss_mb: float
    records: int


@dataclass(frozen=True)
class Memory:
    """Resident memory of the engine's process tree while it runs.

    Args:
        early_mb: median of the second fifth of the run, when everything is loaded.
        late_mb: median of the last fifth.
    """

    rss_mb: Sequence[tuple[float, float]]
    early_mb: float
    late_mb: float


def throughput(
    marks: Sequence[Mark], records: int, warm_up: float, peak_rss_mb: float
) -> Throughput:
    """Figures between the end of the warm-up, a share of the records, and the last record."""
    first = next((mark for mark in marks if mark.records >= records * warm_up), None)
    last = next((mark for mark in marks if mark.records >= records), None)
    if first is None or last is None or first is last:
        raise DeadlineError(
            "the run is too short to be measured",
            expected=f"several batches that read {records} records",
            found=f"{len(marks)} batches, {marks[-1].records if marks else 0} records",
        )
    measured = last.records - first.records
    return Throughput(
        records_per_s=measured / (last.at_s - first.at_s),
        cpu_s_per_million=(last.cpu_s - first.cpu_s) / measured * 1e6,
        peak_rss_mb=peak_rss_mb,
    )


def latencies_ms(
    produced_ms: Mapping[Cell, Sequence[int]],
    seen: Sequence[tuple[int, Result]],
    from_ms: int,
) -> list[int]:
    """How long each record took to show.

    The n-th record of a cell is visible with the first result that counts at least n records.
    Those that were due before `from_ms` do not count.
    """
    shown: dict[Cell, int] = {}
    latencies = []
    for at_ms, result in seen:
        before = shown.get(result.cell, 0)
        due = produced_ms[result.cell][before : result.records]
        latencies += [at_ms - due_ms for due_ms in due if due_ms >= from_ms]
        shown[result.cell] = max(before, result.records)
    return latencies


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all are not above."""
    require(len(values) > 0, "a percentile of something")
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]


def memory(rss_mb: Sequence[tuple[float, float]]) -> Memory:
    """Whether memory grows: compares the last fifth of a run with the second one."""
    length = rss_mb[-1][0]
    early = [mb for at_s, mb in rss_mb if length * 0.2 <= at_s < length * 0.4]
    late = [mb for at_s, mb in rss_mb if at_s >= length * 0.8]
    return Memory(rss_mb, median(early), median(late))

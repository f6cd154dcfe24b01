"""From what was noted around each kill to figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median


@dataclass(frozen=True)
class Recovery:
    """One kill, by the wall clock in milliseconds; all after `killed_ms`.

    Args:
        killed_ms: the process was gone.
        owner_ms: its successor has claimed and fenced, while Spark starts.
        running_ms: its query was started: Spark is up, the plan is made.
        batch_ms: its first batch was committed; the state was loaded for it.
        visible_ms: a read_committed reader had a record that the successor has written.
        blocked_ms: how long readers stood still before an open transaction, at the longest.
        ran_s: how long the killed one had run since its third batch.
    """

    killed_ms: int
    owner_ms: int
    running_ms: int
    batch_ms: int
    visible_ms: int
    blocked_ms: int
    ran_s: float

    def seconds(self) -> dict[str, float]:
        """Seconds of each step, and of the whole."""
        times = [self.killed_ms, self.owner_ms, self.running_ms, self.batch_ms, self.visible_ms]
        names = ("claim and fence", "Spark and the plan", "first batch", "to the reader")
        steps = {
            name: (after - before) / 1000
            for name, (before, after) in zip(names, pairwise(times), strict=True)
        }
        whole = (self.visible_ms - self.killed_ms) / 1000
        return {**steps, "kill to visible": whole, "readers blocked": self.blocked_ms / 1000}


@dataclass(frozen=True)
class Spread:
    """Summarise some seconds."""

    median_s: float
    p95_s: float
    worst_s: float


def spread(values: Sequence[float]) -> Spread:
    """The 95th percentile is a value that occurred: that of the nearest rank."""
    ordered = sorted(values)
    rank = ceil(0.95 * len(ordered)) - 1
    return Spread(median(ordered), ordered[rank], ordered[-1])


def summarise(recoveries: Sequence[Recovery]) -> dict[str, Spread]:
    """Summarise each step and the whole."""
    told = [recovery.seconds() for recovery in recoveries]
    return {name: spread([each[name] for each in told]) for name in told[0]} if told else {}


def longest_block(probes: Sequence[tuple[int, bool]], begin_ms: int, end_ms: int) -> int:
    """Longest time in a row in which an open transaction held readers back, within a range.

    Args:
        probes: when, and whether the last stable offset was behind the high watermark; in order.
        begin_ms: from here, what was open before included.
        end_ms: to here.
    """
    longest, since = 0, None
    for at_ms, is_behind in probes:
        if is_behind and since is None:
            since = max(at_ms, begin_ms) if at_ms <= end_ms else None
        elif not is_behind:
            if since is not None and at_ms > begin_ms:
                longest = max(longest, min(at_ms, end_ms) - since)
            since = None
    if since is not None:
        longest = max(longest, end_ms - since)
    return longest

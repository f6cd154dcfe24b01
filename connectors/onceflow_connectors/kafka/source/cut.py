"""How far a batch reads when there is more than it may hold. Pure: look-ups are handed in.

Spark's event watermark follows the partition that is furthest ahead in time, and drops what is too
far behind it. So, if a backlog does not fit, all partitions are read up to one moment: the batch
ends, in each of them, before the first record that is not older than a timestamp T, and T is the
latest for which everything fits. Records were appended in the order in which they arrived, so this
replays the order in which a query that never fell behind would have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from onceflow.contracts.connector import Place
from onceflow.errors import InvariantError

Cut: TypeAlias = Mapping[Place, int]
"""For every place, the next offset after the batch."""

GOOD_FILL = 0.8
"""A batch that holds this part of its limit is worth no further look-up."""
MAX_LOOKUPS = 130
"""Every second one halves what is left of the 64 bits of a timestamp."""


@dataclass(frozen=True)
class Backlog:
    """The records that could be read, from `starts` to where the log ends for us."""

    starts: Cut
    ends: Cut

    @property
    def size(self) -> int:
        """Offsets in it."""
        return self.size_of(self.ends)

    def size_of(self, cut: Cut) -> int:
        """Offsets between the start and a cut."""
        return sum(cut[place] - start for place, start in self.starts.items())

    def only(self, places: Iterable[Place]) -> Backlog:
        """The part of it in `places`."""
        starts = {place: self.starts[place] for place in places}
        return Backlog(starts, {place: self.ends[place] for place in starts})

    def clamp(self, found: Mapping[Place, int | None]) -> Cut:
        """Bring looked up offsets into the backlog; None stands for the end of a place."""
        clamped = {}
        for place, start in self.starts.items():
            offset, end = found[place], self.ends[place]
            clamped[place] = end if offset is None else min(max(offset, start), end)
        return clamped


@dataclass(frozen=True)
class _Moment:
    """A timestamp, and the cut before all records that are not older."""

    at_ms: int
    cut: Cut


def cut_in_time(
    backlog: Backlog,
    limit: int,
    span_ms: tuple[int, int],
    offsets_at: Callable[[int], Mapping[Place, int | None]],
) -> tuple[Cut, int]:
    """Choose the cut of a batch so that all places advance together in time.

    Guaranteed: more than nothing and at most `limit` offsets; apart from places whose records carry
    no timestamps, or whose timestamps go backwards, no two places are more than one distinct
    timestamp apart.

    Args:
        backlog: larger than `limit`.
        limit: on the offsets of the batch; at least 1.
        span_ms: a timestamp worth a first look, and the newest timestamp of any record.
        offsets_at: for a timestamp, the first offset of each place whose record is not older; None
            where there is none. Never falls when the timestamp rises.

    Returns:
        The cut, and its timestamp: a good first look for the next batch.
    """
    guess_ms, newest_ms = span_ms
    low = _Moment(-1, backlog.starts)
    high = _Moment(newest_ms + 1, backlog.ends)
    for lookup in range(MAX_LOOKUPS):
        if backlog.size_of(low.cut) >= GOOD_FILL * limit:
            return low.cut, low.at_ms
        if high.at_ms - low.at_ms <= 1:
            return _fill(backlog, low.cut, high.cut, limit), high.at_ms
        if lookup > 0:
            guess_ms = _between(backlog, low, high, limit, lookup)
        guess_ms = min(max(guess_ms, low.at_ms + 1), high.at_ms - 1)
        moment = _Moment(guess_ms, backlog.clamp(offsets_at(guess_ms)))
        if backlog.size_of(moment.cut) <= limit:
            low = moment
        else:
            high = moment
    raise InvariantError("a search over timestamps ends", found=f"{low.at_ms} to {high.at_ms}")


def cut_in_proportion(backlog: Backlog, limit: int) -> Cut:
    """Give each place a part of `limit` that is in proportion to its backlog.

    For sources without event time, where any cut will do: it spreads a batch over all tasks.
    """
    return _fill(backlog, backlog.starts, backlog.ends, limit)


def _between(backlog: Backlog, low: _Moment, high: _Moment, limit: int, lookup: int) -> int:
    """Where to look next: mostly where a steady rate would put the limit, else in the middle."""
    if lookup % 2 == 0:
        return (low.at_ms + high.at_ms) // 2
    below, above = backlog.size_of(low.cut), backlog.size_of(high.cut)
    # Aim a little low: a cut that fits ends the search, one that does not goes on.
    wanted = (1 + GOOD_FILL) / 2 * limit
    return low.at_ms + int((high.at_ms - low.at_ms) * (wanted - below) / (above - below))


def _fill(backlog: Backlog, low: Cut, high: Cut, limit: int) -> Cut:
    """From a cut that fits towards one that does not, until the limit is reached."""
    room = limit - backlog.size_of(low)
    missing = {place: high[place] - offset for place, offset in low.items()}
    total = sum(missing.values())
    cut = {place: low[place] + room * width // total for place, width in missing.items()}
    left = limit - backlog.size_of(cut)
    for place in sorted(cut):  # what rounding left over, so that there is always progress
        extra = min(left, high[place] - cut[place])
        cut[place] += extra
        left -= extra
    return cut

"""Small drawings of the status page, as SVG. Text in them is escaped here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape as escape_markup

from onceflow.protocol.ledger import HeadEntry
from onceflow.texts import visible

BARS = 60
BAR, HEIGHT = 10, 80
SPARK = (240, 36)
TOGETHER = 6
"""Values that are one point of a line: it has room for no more than those of an hour."""


def timeline_of(recent: Sequence[HeadEntry], replayed: Collection[int]) -> str:
    """A bar for each of the newest batches: what it read, and whether it was replayed."""
    shown = recent[-BARS:]
    most = max((entry.records.read for entry in shown), default=0) or 1
    bars = []
    for place, entry in enumerate(shown, start=BARS - len(shown)):
        height = max(2, round(entry.records.read / most * HEIGHT))
        is_replayed = entry.batch.batch_id in replayed
        kind = "bar replayed" if is_replayed else "bar"
        records = entry.records
        told = f"batch {entry.batch.batch_id}: read {records.read:,}, written {records.written:,}"
        told += ", replayed" if is_replayed else ""
        bars.append(
            f'<rect class="{kind}" x="{place * BAR + 1}" y="{HEIGHT - height}" width="{BAR - 2}"'
            f' height="{height}"><title>{escape(told)}</title></rect>'
        )
    label = f"records read by each of the last {len(shown)} batches, at most {most:,}"
    return _svg("timeline", (BARS * BAR, HEIGHT), label, bars)


def trend_of(values: Sequence[float | None], what: str) -> str:
    """A line through the values that are known, at equal distances; gaps stay gaps."""
    width, height = SPARK
    values = [_mean(values[place : place + TOGETHER]) for place in range(0, len(values), TOGETHER)]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    most, step = max(known) or 1, width / max(1, len(values) - 1)
    path, is_open = [], False
    for place, value in enumerate(values):
        if value is not None:
            y = height - 2 - value / most * (height - 4)
            path.append(f"{'L' if is_open else 'M'}{place * step:.1f} {y:.1f}")
        is_open = value is not None
    label = f"records {what} per second: {known[-1]:,.0f} at last, at most {max(known):,.0f}"
    return _svg("spark", SPARK, label, [f'<path d="{"".join(path)}"/>'])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _svg(kind: str, size: tuple[int, int], label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {size[0]} {size[1]}" preserveAspectRatio="none" class="{kind}"'
    return f'<svg {box} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def escape(text: str) -> str:
    """As text of a drawing."""
    return escape_markup(visible(text))

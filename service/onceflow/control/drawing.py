"""Small drawings of the status page, as SVG. Text in them is escaped here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape as escape_markup
from typing import Any

from onceflow.ops.texts import visible
from onceflow.pipeline.model import Pipeline
from onceflow.protocol.ledger import HeadEntry

BOX = (190, 44)
ROW, COLUMN = 60, 260
MAX_TEXT = 26
BARS = 60
BAR, HEIGHT = 10, 80


def graph_of(pipeline: Pipeline, seen: Mapping[str, Any]) -> str:
    """From topics through the query to topics.

    Args:
        pipeline: drawn.
        seen: its summary; for the lag of each source.
    """
    lag: dict[str, int] = {}
    for row in seen.get("sources", ()):
        lag[row["source"]] = lag.get(row["source"], 0) + row["lag"]
    sources = [
        (
            ", ".join(source.kafka.topics or (source.kafka.pattern or "",)),
            f"{name}: {lag[name]:,} wait" if name in lag else name,
        )
        for name, source in pipeline.sources.items()
    ]
    sinks = [(pipeline.sink.kafka.topic, "output")]
    if pipeline.dead_letter is not None:
        sinks.append((pipeline.dead_letter.topic, "dead letters"))
    if pipeline.late is not None:
        sinks.append((pipeline.late.topic, "late records"))
    rows = max(len(sources), len(sinks))
    middle = (pipeline.name, "transform" if pipeline.transform else "query")
    parts = [_box(COLUMN, (rows - 1) / 2, middle, "query")]
    for column, boxes in ((0, sources), (2 * COLUMN, sinks)):
        for place, texts in enumerate(boxes):
            row = place + (rows - len(boxes)) / 2
            parts += [_box(column, row, texts, "topic"), _line(column, row, (rows - 1) / 2)]
    width, height = 2 * COLUMN + BOX[0] + 2, rows * ROW
    label = escape(f"{', '.join(t for t, _ in sources)} to {', '.join(t for t, _ in sinks)}")
    return _svg("graph", width, height, label, parts)


def timeline_of(recent: Sequence[HeadEntry], replayed: Collection[int]) -> str:
    """A bar for each of the newest batches: what it read, and whether it was replayed.

    Args:
        recent: entries of the ledger, oldest first.
        replayed: ids of batches that ran again since the service began.
    """
    shown = recent[-BARS:]
    most = max((entry.records.read for entry in shown), default=0) or 1
    bars = []
    for place, entry in enumerate(shown):
        height = max(2, round(entry.records.read / most * HEIGHT))
        is_replayed = entry.batch.batch_id in replayed
        kind = "bar replayed" if is_replayed else "bar"
        records = entry.records
        told = f"batch {entry.batch.batch_id}: read {records.read:,}, written {records.written:,}"
        told += ", replayed" if is_replayed else ""
        bars.append(
            f'<rect class="{kind}" x="{place * BAR}" y="{HEIGHT - height}" width="{BAR - 2}"'
            f' height="{height}"><title>{escape(told)}</title></rect>'
        )
    label = f"records read by each of the last {len(shown)} batches, at most {most:,}"
    return _svg("timeline", BARS * BAR, HEIGHT, label, bars)


def _svg(kind: str, width: float, height: float, label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width} {height}" class="{kind}" role="img" aria-label="{label}"'
    return f"<svg {box}>{''.join(parts)}</svg>"


def _box(x: float, row: float, texts: tuple[str, str], kind: str) -> str:
    y = row * ROW + (ROW - BOX[1]) / 2
    title, below = (escape(_short(text)) for text in texts)
    return (
        f'<rect class="{kind}" x="{x + 1}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6"/>'
        f'<text x="{x + BOX[0] / 2}" y="{y + 18}">{title}</text>'
        f'<text class="below" x="{x + BOX[0] / 2}" y="{y + 35}">{below}</text>'
    )


def _line(column: float, row: float, middle: float) -> str:
    """Between a box at a side and the one in the middle."""
    y, centre = (row + 0.5) * ROW, (middle + 0.5) * ROW
    ends = (
        (column + BOX[0], y, COLUMN, centre)
        if column < COLUMN
        else (COLUMN + BOX[0], centre, column, y)
    )
    from_x, from_y, to_x, to_y = ends
    half = (from_x + to_x) / 2
    return f'<path d="M{from_x} {from_y} C{half} {from_y} {half} {to_y} {to_x} {to_y}"/>'


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def escape(text: str) -> str:
    """As text of a drawing."""
    return escape_markup(visible(text))

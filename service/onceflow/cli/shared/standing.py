"""Shows where something stands that reads topics: for `onceflow status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_FIGURES = ("position", "lag", "undecided")


def place_of(row: Mapping[str, Any]) -> str:
    """Topic and partition of a row."""
    return f"{row['topic']}-{row['partition']}"


def inputs_table(
    rows: Iterable[Mapping[str, Any]], names: Mapping[str, Callable[[Mapping[str, Any]], str]]
) -> Table:
    """A row for each partition: its names under these headings, figures, and the newest record."""
    from rich.table import Column, Table

    # Names may be broken over lines, figures and times may not.
    table = Table(
        *(Column(heading, overflow="fold") for heading in names),
        *(Column(name, no_wrap=True, justify="right") for name in _FIGURES),
        Column("newest record", no_wrap=True),
    )
    for row in rows:
        figures = (f"{row[name]:,}" for name in _FIGURES)
        table.add_row(*(name(row) for name in names.values()), *figures, row["newest_record"])
    return table


def notes_on(facts: dict[str, Any]) -> Iterator[str]:
    """List open transactions, retention that comes near, and what was not seen."""
    from onceflow.texts import span_text, time_text

    if (holder := facts.get("watermark_holder")) and len(
        {row["source"] for row in facts["sources"]}
    ) > 1:
        newest = time_text(holder["newest_ms"] or 0)
        place = holder["place"] or "no record"
        yield f"watermark held by: {holder['source']} ({place}, newest record {newest})"
    for transaction in facts["open_transactions"]:
        yield (
            f"open transaction: {transaction['transactional_id'] or '(no coordinator)'} in"
            f" {transaction['topic']}-{transaction['partition']} since"
            f" {time_text(transaction['started_ms'])}"
        )
    for one in facts["retention"]:
        topic, partition = one["place"]
        mark = " (soon)" if one["is_soon"] else ""
        left = span_text(one["left_s"])
        yield f"standing still, {one['rule']} overtakes {topic}-{partition} in {left}{mark}"
    for what, why in facts["not_seen"].items():
        yield f"not seen: {what}: {why}"

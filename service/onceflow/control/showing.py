"""How values are shown on the page, and what stands for those that are not."""

from __future__ import annotations

from markupsafe import Markup

from onceflow.texts import iso_text, span_text, time_text

MASK = "(not shown)"


def moment(unix_ms: int) -> str:
    """A time in UTC, which the page's script shows in the browser's time zone."""
    iso = iso_text(unix_ms)
    if "T" not in iso:  # there is none, or it is out of range
        return iso
    return Markup('<time datetime="{}">{}</time>').format(iso, time_text(unix_ms))


def count(value: float | None) -> str:
    """A number, or a dash if it is unknown."""
    return "-" if value is None else f"{value:,.0f}"


def span(seconds: float | None) -> str:
    """A duration, or a dash if it is unknown."""
    return "-" if seconds is None else span_text(seconds)

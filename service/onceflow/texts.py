"""Values as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_CONTROL = "\\x00-\\x08\\x0b-\\x1f\\x80-\\x9f"
_DIRECTION = "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
_HIDDEN = re.compile(f"[{_CONTROL}{_DIRECTION}\\ud800-\\udfff]")
"""What terminals and browsers obey instead of showing it, but for line ends and tabs. Text that
turns its own direction around can pass for another."""


def time_text(unix_ms: int) -> str:
    """A moment as people read it; 0 means that there is none."""
    return iso_text(unix_ms).replace("T", " ").replace("+00:00", " UTC")


def iso_text(unix_ms: int) -> str:
    """A moment as programs read it (ISO 8601). Records may carry what no calendar has."""
    if unix_ms == 0:
        return "-"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return f"{unix_ms} ms after 1970"
    return moment.isoformat(timespec="seconds")


def span_text(seconds: float) -> str:
    """A length of time for people, in the largest unit of which there are two."""
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def text_of(data: bytes | None) -> str | None:
    """Bytes: UTF-8, with what is none as escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    """The text with escapes in place of control characters, but for line ends and tabs."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def on_one_line(text: str) -> str:
    """The same, with line ends and tabs as escapes as well: it passes for nothing but itself."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")

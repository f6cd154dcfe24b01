"""Values as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def time_text(unix_ms: int) -> str:
    """A moment; 0 means that there is none. Records may carry what no calendar has."""
    if unix_ms == 0:
        return "-"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return f"{unix_ms} ms after 1970"
    return moment.isoformat(timespec="seconds")


def text_of(data: bytes | None) -> str | None:
    """Bytes: UTF-8, with what is none as escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")

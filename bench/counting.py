"""The answer of the workload's query by processors; copied next to the pipeline file of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from onceflow.processing import Map, Processor

WINDOW_MS = 10_000


class Updates(Processor):
    """Gives each window that a batch has changed."""

    key = "ad_id"
    windows = Map("bigint", "records bigint, total bigint", ttl="1 minute")
    output = "ad_id string, window_ms bigint, records bigint, total bigint"

    def on_records(self, key: Any, records: Iterable[Any]) -> Iterator[Any]:
        """Count."""
        for window_ms, (count, total) in self.changed(records).items():
            yield key, window_ms, count, total

    def changed(self, records: Iterable[Any]) -> dict[int, tuple[int, int]]:
        """Count, and return the windows that have changed."""
        changed: dict[int, tuple[int, int]] = {}
        for record in records:
            window_ms = record.ts - record.ts % WINDOW_MS
            if window_ms not in changed:
                self.on_window(window_ms)
            count, total = changed.get(window_ms) or self.windows.get(window_ms, (0, 0))
            changed[window_ms] = (count + 1, total + record.amount)
        self.windows.update(changed)
        return changed

    def on_window(self, window_ms: int) -> None:
        """Told of a window with a record of it in hand."""


class Final(Updates):
    """Gives each window once, when it is over."""

    def on_records(self, key: Any, records: Iterable[Any]) -> Iterator[Any]:
        """Count, and give nothing yet."""
        self.changed(records)
        yield from ()

    def on_window(self, window_ms: int) -> None:
        """Set a timer at its end."""
        end = datetime.fromtimestamp(window_ms / 1000, UTC) + timedelta(milliseconds=WINDOW_MS)
        self.timers.at(end, str(window_ms))

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        """Give a window."""
        count, total = self.windows.pop(int(name))
        yield key, int(name), count, total

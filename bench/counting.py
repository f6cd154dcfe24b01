"""A processor that counts; copied next to the pipeline file of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onceflow.processing import Processor, Value


class Counter(Processor):
    """Keeps one value for each key, and gives it whenever records of the key have come."""

    key = "ad_id"
    counted = Value("records bigint, total bigint", default=(0, 0))
    output = "ad_id string, records bigint, total bigint"

    def on_records(self, key: Any, records: Iterable[Any]) -> Iterator[Any]:
        """Count and sum."""
        count, total = self.counted.get()
        for record in records:
            count += 1
            total += record.amount
        self.counted.set((count, total))
        yield key, count, total

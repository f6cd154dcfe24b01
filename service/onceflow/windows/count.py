"""Count windows: a row for every so many records of a key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import gcd
from typing import Any, ClassVar

from onceflow.errors import Fault
from onceflow.windows.window import Kept, Window, number_faults


class CountWindow(Window):
    """A row for the last `size` records of a key, and again after `every` more.

    `window_start` and `window_end` are the earliest and the latest event time of its records. What
    is kept are accumulators, one for each run of records that all windows have or have not: `size`
    divided by the greatest common divisor of both numbers. Windows that are not full give no row.

    Attributes:
        size: records of a window.
        every: records from the start of a window to the start of the next. Left out: `size`.
        ttl: after this time without a record, counting starts again. Left out: never.
    """

    size: ClassVar[int]
    every: ClassVar[int | None] = None
    kept = Kept(
        "size bigint, every bigint, missing bigint,"
        " runs array<struct<first:timestamp,last:timestamp,n:bigint,totals:{totals}>>"
    )

    @classmethod
    def faults(cls) -> Iterator[Fault]:
        """Size and step as well."""
        yield from super().faults()
        yield from number_faults(cls, "size", 1)
        if cls.every is not None:
            yield from number_faults(cls, "every", 1)

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        """Count, and give a row for each window that is full."""
        size, every = self.size, self.every or self.size
        together = self.together()
        length = gcd(size, every)
        for record in records:
            missing, runs = self._counted(size, every)
            missing -= 1
            if missing < size:
                runs = self._with(runs, together.value(record), length)
            if not missing:
                first, last = min(run[0] for run in runs), max(run[1] for run in runs)
                yield self.row(key, first, last, reduce(together.merge, (run[3] for run in runs)))
                missing, runs = every, runs[every // length :]
            self.kept.set((size, every, missing, runs))
        if (missing, runs) == (size, []):
            self.kept.clear()

    def _counted(self, size: int, every: int) -> tuple[int, list[Any]]:
        """Records until the next row, and what is counted; from the start after a change."""
        kept = self.kept.get()
        return kept[2:] if kept and kept[:2] == (size, every) else (size, [])

    def _with(self, runs: list[Any], value: Any, length: int) -> list[Any]:
        """Runs with one more record, in the last one or in a new one."""
        first, last, n, totals = self.now, self.now, 0, self.together().zero()
        if runs and runs[-1][2] < length:
            *runs, (first, last, n, totals) = runs
        totals = self.together().add(totals, value)
        return [*runs, (min(first, self.now), max(last, self.now), n + 1, totals)]

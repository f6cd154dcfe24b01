"""A job whose output shows at once if any part of its state is lost, stale or counted twice.

All is in one window that stays open. Each of the first batches has pages of its own, most of which
sleep until one later start, so that a snapshot holds what no changelog after it does. A start has
a batch of all pages and a smaller one: each of the newest changelogs holds what no other does.
Every change of a count is written; the last one of each page is checked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from tests.support.jobs.views import FIRST, View, ViewsJob
from tests.support.outside.judge import anomalies

FIRST_BATCHES = 14
"""Enough for two snapshots, changelogs after them, and some files ten older."""
SLEEPERS = 110
"""Of each first batch: each is woken by one start, and no more starts can be checked."""
BATCH = SLEEPERS + 2
"""Records of every batch: of a first one, and of each of a start's two."""
_SPACING = timedelta(seconds=20)
"""From one of the first batches to the next: each has a watermark of its own."""


@dataclass
class TallyJob(ViewsJob):
    """Views per page in one long window, each change of them."""

    starts: int = 0

    def write_file(self, batch: int = BATCH, extra: str = "") -> Path:
        path = super().write_file(batch, extra)
        text = path.read_text().replace("'1 minute'", "'1 hour'")
        path.write_text(text.replace("key: page}", "key: page}\n  emit: updates"))
        return path

    def introduce(self) -> None:
        """The first batches: two pages that will be seen all the time, and those that sleep."""
        views: list[View] = []
        for number in range(FIRST_BATCHES):
            pages = [f"/often/{number}", f"/seldom/{number}"]
            pages += (f"/{number}/{sleeper}" for sleeper in range(SLEEPERS))
            views += _batch(pages, number)
        self.send(views)

    def touch(self) -> None:
        """Two batches: all pages that are awake, and those that are seen often."""
        numbers = range(FIRST_BATCHES)
        often, seldom = ([f"/{kind}/{n}" for n in numbers] for kind in ("often", "seldom"))
        woken = [f"/{number}/{self.starts}" for number in numbers]
        self.starts += 1
        batches = (_batch(pages, FIRST_BATCHES) for pages in (often + seldom + woken, often))
        self.send([view for batch in batches for view in batch])

    def check(self) -> None:
        """Each count was only ever raised, and stands where the oracle says."""
        written, heads = self.written(), self.heads()
        counts: dict[str, list[tuple[int, int]]] = {}
        for record in sorted(written, key=lambda w: (w.partition, w.offset)):
            seen = counts.setdefault(record.row["page"], [])
            seen.append((record.row["views"], record.row["total_ms"]))
        views = Counter(view.page for view in self.produced)
        total: Counter[str] = Counter()
        for view in self.produced:
            total[view.page] += view.ms
        assert {p: s[-1] for p, s in counts.items()} == {p: (views[p], total[p]) for p in views}
        repeated = [p for p, s in counts.items() if any(a >= b for (a, _), (b, _) in pairwise(s))]
        assert repeated == []
        assert anomalies(written, heads) == []


STEP = "tally"
PROCESSOR = """\
from datetime import timedelta

from onceflow.processing import Processor, Value


class Tally(Processor):
    key = "page"
    counted = Value("views bigint, total_ms bigint", default=(0, 0))
    output = "page string, views bigint, total_ms bigint"

    def on_records(self, key, records):
        for record in records:
            views, total = self.counted.get()
            self.counted.set((views + 1, total + record.ms))
            self.timers.cancel()
            self.timers.at(record.at + timedelta(hours=1))
        yield key, *self.counted.get()

    def on_timer(self, key, at, name):
        raise AssertionError("it never goes off")
"""


@dataclass
class TallyProcessorJob(TallyJob):
    """The same by a processor, with a timer for each page that never goes off."""

    def write_file(self, batch: int = BATCH, extra: str = "") -> Path:
        module = self.name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(PROCESSOR)
        path = ViewsJob.write_file(self, batch, extra)
        head, _, rest = path.read_text().partition("query: |")
        steps = f"process:\n  {STEP}: {{class: '{module}:Tally', input: clicks}}\n"
        _, _, sink = rest.partition("sink:")
        path.write_text(f"{head}{steps}query: SELECT * FROM {STEP}\nsink:{sink}")
        return path


def _batch(pages: list[str], number: int) -> list[View]:
    filled = [*pages, *["/filler"] * (BATCH - len(pages))]
    return [View(page, len(page), FIRST + number * _SPACING) for page in filled]

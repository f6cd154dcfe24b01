"""Page views for the demonstration, and the answer computed without Spark.

The answer shares nothing with the product but the question: views and milliseconds per page and
minute, for every minute that is over.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

PIPELINE_FILE = """\
apiVersion: onceflow/v1
name: page-views
sources:
  clicks:
    kafka:
      topics: [clicks]
      max_records_per_batch: {max_records}
    format: json
    schema: "user STRING, page STRING, ms BIGINT, at TIMESTAMP"
    event_time: at
    lateness: 10 seconds
query: |
  SELECT page, window.start AS window_start, window.end AS window_end,
         count(*) AS views, sum(ms) AS total_ms
  FROM clicks GROUP BY page, window(at, '1 minute')
sink:
  kafka: {{topic: page-views, partitions: 4, key: page}}
  format: json
checkpoint: {checkpoint}
"""

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_WINDOW = timedelta(minutes=1)
_PAGES = 50
_USERS = 5_000
_MAX_DISORDER_S = 5
"""Below the pipeline's lateness, so that no record may be dropped."""
_CLOSING_GAP = timedelta(hours=1)
"""How far behind the last view one closing record follows, so that every window ends."""


@dataclass(frozen=True)
class View:
    """One page view."""

    user: str
    page: str
    ms: int
    at: datetime

    def to_json(self) -> bytes:
        """As a producer would write it."""
        fields = {"user": self.user, "page": self.page, "ms": self.ms, "at": self.at.isoformat()}
        return json.dumps(fields).encode()


def generate_views(count: int, seconds: int, seed: int) -> Iterator[View]:
    """Yield `count` views spread over `seconds` of event time, slightly out of order.

    The last one lies an hour later and closes every window but its own.
    """
    dice = random.Random(seed)  # noqa: S311  a demonstration, not a secret
    for i in range(count - 1):
        at = _FIRST + timedelta(seconds=i * seconds / count - dice.random() * _MAX_DISORDER_S)
        yield View(
            user=f"user-{dice.randrange(_USERS)}",
            page=f"/page/{dice.randrange(_PAGES)}",
            ms=dice.randrange(1, 2_000),
            at=at,
        )
    yield View("no-one", "/closing", 0, _FIRST + timedelta(seconds=seconds) + _CLOSING_GAP)


Cell: TypeAlias = tuple[str, str]
"""Page and start of the minute."""
Row: TypeAlias = tuple[Cell, tuple[int, int]]
"""A cell with its views and their milliseconds."""


def expected_answer(views: Iterator[View]) -> Mapping[Cell, tuple[int, int]]:
    """Compute what the pipeline must have written."""
    counts: Counter[Cell] = Counter()
    totals: Counter[Cell] = Counter()
    for view in views:
        if view.page == "/closing":
            continue
        minute = _FIRST + (view.at - _FIRST) // _WINDOW * _WINDOW
        cell = view.page, minute.isoformat()
        counts[cell] += 1
        totals[cell] += view.ms
    return {cell: (counts[cell], totals[cell]) for cell in counts}


def answer_row(value: bytes) -> Row:
    """Read one output record the way a user's program would."""
    row = json.loads(value)
    start = datetime.fromisoformat(row["window_start"]).astimezone(UTC)
    return (row["page"], start.isoformat()), (row["views"], row["total_ms"])

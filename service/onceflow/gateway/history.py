"""The last hour of a gateway in this process, sampled from its metrics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from onceflow.clock import Clock
from onceflow.serve.hour import INTERVAL_S, SLOTS, Hour

GAUGES = ("slots", "keys", "in_flight_bytes")
ANSWERS, TOOK_S = "answers", "took_s"
RECENT = 60
"""Samples that count as recent: five minutes."""
JOIN_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Totals:
    """Counts since the process began, and figures of the running instance, if there is one."""

    posts: Counter[int]
    records: int
    took_s: float
    figures: Mapping[str, float]


class GatewayHistory(Hour):
    """Listens to the runs of a gateway, and takes samples of its metrics."""

    rates = ("records", "posts", "refused", "failed")
    trend = "records"
    others = (*GAUGES, ANSWERS, TOOK_S)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._before = Totals(Counter(), 0, 0.0, {})
        self._recent: deque[Counter[int]] = deque(maxlen=RECENT)
        self.figures: Mapping[str, float] = {}

    def take(self, now: Totals) -> None:
        """Take a sample."""
        with self._lock:
            place = self._moved_to(self._clock.monotonic_s())
            before, self._before = self._before, now
            posts = now.posts - before.posts
            self._recent.append(posts)
            counts = {
                "records": now.records - before.records,
                "posts": sum(n for status, n in posts.items() if status < 400),
                "refused": sum(n for status, n in posts.items() if 400 <= status < 500),
                "failed": sum(n for status, n in posts.items() if status >= 500),
                ANSWERS: posts.total(),
                TOOK_S: now.took_s - before.took_s,
            }
            for name, count in counts.items():
                self._add(name, place, count)
            self.figures = now.figures
            for name, value in now.figures.items():
                self._columns[name][place] = value

    def refused(self) -> Mapping[int, int]:
        """Posts of the last minutes that were not taken: status and count."""
        with self._lock:
            found = sum(self._recent, Counter[int]())
        return {status: count for status, count in sorted(found.items()) if status >= 400}

    def _hear(self, event: str, facts: Mapping[str, Any], now_s: float) -> None:
        match event:
            case "running":
                self._mark(now_s, "started", "")
            case "slot_taken":
                self._mark(now_s, "slot taken", f"slot {facts['slot']}, {facts['keys']:,} keys")
            case "slot_left":
                self._mark(now_s, "slot left", f"slot {facts['slot']}")
            case "failed" | "stopped":
                self.figures = {}
                self._mark_end(event, facts, now_s)

    def _more_fields(self, slots: Sequence[int]) -> Mapping[str, Any]:
        answers = self._columns[ANSWERS]
        took = self._columns[TOOK_S]
        return {
            **{name: self._told(name, slots) for name in GAUGES},
            "answer_ms": [
                round(1000 * took[n % SLOTS] / answers[n % SLOTS], 2)
                if answers[n % SLOTS] > 0
                else None
                for n in slots
            ],
        }


@contextmanager
def sampling(sample: Callable[[], None], interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Take a sample now and then inside the block, in a thread of its own."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(interval_s):
            sample()

    thread = threading.Thread(target=run, name="samples", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_TIMEOUT_S)

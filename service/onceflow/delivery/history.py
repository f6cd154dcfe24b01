"""The last hour of a delivery or an enrichment, and where its run in this process stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.clock import Clock
from onceflow.serve.hour import SLOTS, Hour

GAUGES = ("lag", "lag_s")
FIGURES = (*GAUGES, "records_per_second", "retention_left_s")
BATCHES, BATCH_S, TRIES_FAILED = "batches", "batch_s", "tries_failed"


@dataclass(frozen=True)
class Wait:
    """Why nothing is done at the moment, and when it is tried again."""

    reason: str
    failures: int
    next_try_ms: int


class CarriageHistory(Hour):
    """Listens to the runs of one delivery or enrichment."""

    rates = ("written", "rejected", "dropped")
    trend = "written"
    others = (*GAUGES, BATCHES, BATCH_S, TRIES_FAILED)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._looked_s: float | None = None
        """When lag and rates were reported last, by the run that runs."""
        self._failure = ""
        self.counts: Counter[str] = Counter()
        """Records since this service started: written, rejected, dropped; and tries that failed."""
        self.figures: Mapping[str, float | None] = {}
        """As the run has seen them last."""
        self.wait: Wait | None = None

    def _hear(self, event: str, facts: Mapping[str, Any], now_s: float) -> None:
        match event:
            case "delivering":
                self.wait, self._looked_s = None, now_s
                self._mark(now_s, "started", "")
            case "batch":
                counts = {name: facts[name] for name in ("rejected", "dropped")}
                counts["written"] = facts["records"]
                self.counts.update(counts)
                self._spread(counts, now_s - facts["seconds"], now_s)
                place = self._moved_to(now_s)
                self._add(BATCHES, place, 1)
                self._add(BATCH_S, place, facts["seconds"])
            case "waiting":
                self._take_wait(facts, now_s)
            case "resumed":
                self.wait = None
                self._mark(now_s, event, "")
            case "progress":
                self._take_progress(facts, now_s)
            case "failed" | "stopped":
                self.wait, self._looked_s, self.figures = None, None, {}
                self._failure = str(facts.get("text", ""))
                self._mark_end(event, facts, now_s)

    def _take_wait(self, facts: Mapping[str, Any], now_s: float) -> None:
        """Take in that the target is left alone, or that a run that failed is started later."""
        is_of_target = "reason" in facts
        failures = facts["failures" if is_of_target else "failures_in_a_row"]
        seconds = facts["retry_in_s" if is_of_target else "seconds"]
        reason = facts["reason"] if is_of_target else self._failure
        if is_of_target:
            self.counts[TRIES_FAILED] += 1
            self._add(TRIES_FAILED, self._moved_to(now_s), 1)
            if self.wait is None:
                self._mark(now_s, "waiting", reason)
        next_try_ms = self._clock.unix_ms() + round(seconds * 1000)
        self.wait = Wait(reason, failures, next_try_ms)

    def _take_progress(self, facts: Mapping[str, Any], now_s: float) -> None:
        """Take in figures, which are those of the time since they were seen before."""
        self.figures = {name: facts.get(name) for name in FIGURES}
        self._moved_to(now_s)
        began_s = now_s if self._looked_s is None else self._looked_s
        self._looked_s = now_s
        for slot in self._slots_since(began_s):
            for name in GAUGES:
                if (value := facts[name]) is not None:
                    self._columns[name][slot % SLOTS] = value
            for name in (*self.rates, TRIES_FAILED):
                self._add(name, slot % SLOTS, 0)

    def _more_fields(self, slots: Sequence[int]) -> Mapping[str, Any]:
        return {
            **{name: self._told(name, slots) for name in (*GAUGES, TRIES_FAILED)},
            "batch_ms": [
                None if value is None else round(1000 * value)
                for value in self._mean(BATCH_S, BATCHES, slots)
            ],
        }

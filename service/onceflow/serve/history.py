"""The last hour of a pipeline: what its charts are drawn from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.clock import Clock
from onceflow.serve.hour import SLOTS, Hour

MAX_REPLAYED = 500

WATERMARK, NEWEST_EVENT = "event_watermark_ms", "newest_event_ms"
GAUGES = ("lag", "state_rows", "state_memory_bytes", WATERMARK, NEWEST_EVENT)
PHASES = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets")
"""Spark's names. What else the whole (`triggerExecution`) has is `other`."""
OTHER, WHOLE = "other", "triggerExecution"
BATCHES, VISIBLE = "batches", "visible_ms"
NO_BATCH: Mapping[str, Any] = {"source_records": {}, "operators": []}
"""What the newest batch has read and changed, source by source and operator by operator."""
ENDS = {"failed", "stopped"}


class History(Hour):
    """Listens to the runs of one pipeline."""

    rates = ("read", "written", "rejected")
    trend = "read"
    others = (*GAUGES, *PHASES, OTHER, BATCHES, VISIBLE)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._holders: list[str | None] = [None] * SLOTS
        self._known: dict[str, float] = {}
        self._is_taking_over = False
        self._waited_since_s = clock.monotonic_s()
        """The next batch reads what came after this."""
        self._newest_batch: dict[str, Any] = dict(NO_BATCH)
        self.only_holder: str | None = None
        """The source that must hold the event watermark, for no other has event time."""
        self.replayed: deque[int] = deque(maxlen=MAX_REPLAYED)
        """Ids of the newest batches that ran again and were skipped."""

    def note_holder(self, holder: str | None) -> None:
        """Note which source holds the event watermark now."""
        with self._lock:
            self._holders[self._moved_to(self._clock.monotonic_s())] = holder

    def _more_fields(self, slots: Sequence[int]) -> Mapping[str, Any]:
        return {
            **{name: self._told(name, slots) for name in (*GAUGES, VISIBLE)},
            "watermark_holder": [self._holders[slot % SLOTS] for slot in slots],
            **self._newest_batch,
            "batches": self._told(BATCHES, slots),
            "batch_ms": {name: self._mean(name, BATCHES, slots) for name in (*PHASES, OTHER)},
        }

    def _hear(self, event: str, facts: Mapping[str, Any], now_s: float) -> None:
        if event == "batch":
            self._take_batch(facts, now_s)
        elif event == "progress":
            self._take_progress(facts, now_s)
        elif event == "taking_over":
            self._is_taking_over = True
        elif event == "owner":
            what = "took over" if self._is_taking_over else "started"
            self._is_taking_over = False
            self._mark(now_s, what, f"fencing token {facts['token']}")
        elif event == "running":
            self._waited_since_s = now_s
        elif event in ENDS:
            self._known.clear()
            self._newest_batch = dict(NO_BATCH)
            is_fenced = facts.get("error") == "FencedError"
            self._mark_end("taken over" if is_fenced else event, facts, now_s)

    def _take_batch(self, facts: Mapping[str, Any], now_s: float) -> None:
        if facts["is_skipped"]:
            self.replayed.append(facts["batch_id"])
            self._mark(now_s, "replayed", f"batch {facts['batch_id']} ran again and was skipped")
            return
        took_ms = max(0, self._clock.unix_ms() - facts["batch_timestamp_ms"])
        records = facts["records"]
        rejected = records["rejected"] + records["refused"]
        counts = {"read": records["read"], "written": records["written"], "rejected": rejected}
        self._spread(counts, self._waited_since_s, now_s)
        self._waited_since_s = now_s
        place = self._newest % SLOTS
        visible = self._columns[VISIBLE]
        visible[place] = took_ms if math.isnan(visible[place]) else max(visible[place], took_ms)
        # No event watermark is 0.
        self._keep({name: facts[name] or None for name in (WATERMARK, NEWEST_EVENT)})

    def _take_progress(self, facts: Mapping[str, Any], now_s: float) -> None:
        place = self._moved_to(now_s)
        self._holders[place] = self.only_holder or self._holders[place]
        if facts.get("lag") == 0:  # else a batch is at work, or will be
            self._waited_since_s = now_s
            for name in self.rates:
                self._add(name, place, 0.0)
        self._keep({name: facts[name] for name in GAUGES if name in facts})
        self._newest_batch |= {name: facts[name] for name in NO_BATCH if name in facts}
        took = facts.get("duration_ms")
        if took:
            self._add(BATCHES, place, 1.0)
            for name in PHASES:
                self._add(name, place, took.get(name, 0))
            known = sum(took.get(name, 0) for name in PHASES)
            self._add(OTHER, place, max(0, took.get(WHOLE, known) - known))

    def _keep(self, figures: Mapping[str, float | None]) -> None:
        """Take in figures that hold until the next; None: no longer known."""
        all_known = {**self._known, **figures}
        self._known = {name: value for name, value in all_known.items() if value is not None}
        for name, value in self._known.items():
            self._columns[name][self._newest % SLOTS] = value

    def _forget(self, place: int) -> None:
        super()._forget(place)
        self._holders[place] = None

    def _rates_end(self) -> int:
        """Leave out the interval in which the newest batch ended: the next has a share in it."""
        return self._slot_at(self._waited_since_s)

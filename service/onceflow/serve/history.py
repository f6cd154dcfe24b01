"""The last hour of a pipeline in memory: what the charts of the status page are drawn from.

It ends with the process. Prometheus keeps what is to be kept for longer.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.clock import Clock

INTERVAL_S = 5
SLOTS = 720
"""An hour of intervals: 8 bytes for each column of each, so some 120 KB for a pipeline."""
MAX_MARKS = 200
"""Of an hour: a pipeline that fails again and again keeps its newest ones."""
MAX_TEXT = 300
"""Characters of a mark: the error itself is shown elsewhere."""
MAX_REPLAYED = 500

RATES = ("read", "written", "rejected")
WATERMARK, NEWEST_EVENT = "event_watermark_ms", "newest_event_ms"
GAUGES = ("lag", "state_rows", "state_memory_bytes", WATERMARK, NEWEST_EVENT)
PHASES = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets")
"""Spark's names. What else the whole (`triggerExecution`) has is `other`."""
OTHER, WHOLE = "other", "triggerExecution"
BATCHES, VISIBLE = "batches", "visible_ms"
NO_BATCH: Mapping[str, Any] = {"source_records": {}, "operators": []}
"""What the newest batch has read and changed, source by source and operator by operator."""
ENDS = {"failed", "stopped"}


class History:
    """Listens to the runs of one pipeline. For several threads at once.

    Time is cut into intervals of `INTERVAL_S`. They are counted on the monotonic clock, so that
    a machine whose clock is set neither mixes nor repeats them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        names = (*RATES, *GAUGES, *PHASES, OTHER, BATCHES, VISIBLE)
        self._columns = {name: array("d", [math.nan]) * SLOTS for name in names}
        self._holders: list[str | None] = [None] * SLOTS
        self._first = self._newest = self._slot_at(clock.monotonic_s())
        self._known: dict[str, float] = {}
        self._marks: deque[tuple[float, str, str]] = deque(maxlen=MAX_MARKS)
        self._is_taking_over = False
        self._waited_since_s = clock.monotonic_s()
        """The next batch reads what came after this."""
        self._newest_batch: dict[str, Any] = dict(NO_BATCH)
        self.only_holder: str | None = None
        """The source that must hold the event watermark, for no other has event time."""
        self.replayed: deque[int] = deque(maxlen=MAX_REPLAYED)
        """Ids of the newest batches that ran again and were skipped."""

    def __call__(self, event: str, /, **facts: Any) -> None:
        """Take in what happened, as a `Report`."""
        with self._lock:
            self._hear(event, facts, self._clock.monotonic_s())

    def note_holder(self, holder: str | None) -> None:
        """Note which source holds the event watermark now."""
        with self._lock:
            self._holders[self._moved_to(self._clock.monotonic_s())] = holder

    def read_per_s(self) -> Sequence[float | None]:
        """Only this column of `fields`."""
        with self._lock:
            return self._rate("read", self._whole_slots(self._clock.monotonic_s()))

    def fields(self) -> Mapping[str, Any]:
        """Columns of the whole intervals since the beginning, oldest first; None is unknown."""
        with self._lock:
            now_s, now_ms = self._clock.monotonic_s(), self._clock.unix_ms()
            slots = self._whole_slots(now_s)
            oldest_s = (self._newest - SLOTS + 1) * INTERVAL_S

            def dated(at_s: float) -> int:
                return now_ms - round((now_s - at_s) * 1000)

            return {
                "interval_s": INTERVAL_S,
                "at_ms": [dated(slot * INTERVAL_S) for slot in slots],
                **{f"{name}_per_s": self._rate(name, slots) for name in RATES},
                **{name: self._told(name, slots) for name in (*GAUGES, VISIBLE)},
                "watermark_holder": [self._holders[slot % SLOTS] for slot in slots],
                **self._newest_batch,
                "batches": self._told(BATCHES, slots),
                "batch_ms": {name: self._mean(name, slots) for name in (*PHASES, OTHER)},
                "marks": [
                    {"at_ms": dated(at_s), "what": what, "text": text}
                    for at_s, what, text in self._marks
                    if at_s >= oldest_s
                ],
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
            text = f"{facts['error']}: {facts['text']}" if "error" in facts else ""
            self._mark(now_s, "taken over" if is_fenced else event, text)

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
            for name in RATES:
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

    def _spread(self, counts: Mapping[str, float], began_s: float, ended_s: float) -> None:
        """Records of a batch came in all the time before its end, not at its end."""
        self._moved_to(ended_s)
        took_s = ended_s - began_s
        oldest = max(self._first, self._newest - SLOTS + 1)
        for slot in range(max(oldest, self._slot_at(began_s)), self._newest + 1):
            from_s, to_s = slot * INTERVAL_S, (slot + 1) * INTERVAL_S
            share = (min(to_s, ended_s) - max(from_s, began_s)) / took_s if took_s > 0 else 1.0
            if share > 0:  # an interval that begins at the end has no part in it
                for name, count in counts.items():
                    self._add(name, slot % SLOTS, count * share)

    def _add(self, name: str, place: int, amount: float) -> None:
        column = self._columns[name]
        column[place] = amount if math.isnan(column[place]) else column[place] + amount

    def _mark(self, now_s: float, what: str, text: str) -> None:
        self._marks.append((now_s, what, text[:MAX_TEXT]))

    def _moved_to(self, now_s: float) -> int:
        """The place of the interval that it is now; what stood there an hour ago is forgotten."""
        slot = self._slot_at(now_s)
        for passed in range(max(self._newest, slot - SLOTS) + 1, slot + 1):
            self._holders[passed % SLOTS] = None
            for column in self._columns.values():
                column[passed % SLOTS] = math.nan
        self._newest = max(self._newest, slot)
        return self._newest % SLOTS

    def _whole_slots(self, now_s: float) -> range:
        self._moved_to(now_s)
        return range(max(self._first, self._newest - SLOTS + 1), self._newest)

    def _slot_at(self, at_s: float) -> int:
        return int(at_s // INTERVAL_S)

    def _told(self, name: str, slots: Sequence[int]) -> Sequence[float | None]:
        column = self._columns[name]
        return [_rounded(column[slot % SLOTS]) for slot in slots]

    def _rate(self, name: str, slots: Sequence[int]) -> Sequence[float | None]:
        """Not of the interval in which the newest batch ended: the next one has a share in it."""
        column, end = self._columns[name], self._slot_at(self._waited_since_s)
        rates = (column[slot % SLOTS] / INTERVAL_S if slot < end else math.nan for slot in slots)
        return [_rounded(rate) for rate in rates]

    def _mean(self, name: str, slots: Sequence[int]) -> Sequence[float | None]:
        """Figures of one batch."""
        sums, batches = self._columns[name], self._columns[BATCHES]
        return [_rounded(sums[slot % SLOTS] / batches[slot % SLOTS]) for slot in slots]


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 2)

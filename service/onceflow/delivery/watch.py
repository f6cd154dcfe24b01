"""Looks at a delivery now and then while it runs, and reports its lag.

In a thread of its own, with connections of its own: the delivery itself may be waiting for a target
that is down, which is when the lag matters most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from onceflow.clock import Clock
from onceflow.contracts.observer import Report
from onceflow.delivery.survey import DeliverySurvey, positions_in
from onceflow.errors import OnceflowError
from onceflow.observe.facts import InputFacts
from onceflow.observe.retention import RetentionGuard

LOOK_INTERVAL_S = 15.0
JOIN_TIMEOUT_S = 5.0
"""For a look that is under way when the delivery ends."""

OpenSurvey = Callable[[], AbstractContextManager[DeliverySurvey]]


@contextmanager
def watching(
    open_survey: OpenSurvey, clock: Clock, report: Report, interval_s: float = LOOK_INTERVAL_S
) -> Iterator[None]:
    """Report `progress` every `interval_s`, and `warning` before retention deletes.

    While nothing can be seen, nothing is reported but a lag of None, once. Nothing is reported
    after the block was left, also if a look takes longer than that waits for it.
    """
    over = threading.Event()

    def report_until_over(event: str, /, **facts: Any) -> None:
        if not over.is_set():
            report(event, **facts)

    watch = _Watch(open_survey, clock, report_until_over)
    thread = threading.Thread(target=watch.run, args=(over, interval_s), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_TIMEOUT_S)


class _Watch:
    def __init__(self, open_survey: OpenSurvey, clock: Clock, report: Report) -> None:
        self._open_survey = open_survey
        self._clock = clock
        self._report = report
        self._is_seen = False
        self._before: tuple[float, int] | None = None
        """When, and offsets before the positions in all partitions together."""

    def run(self, over: threading.Event, interval_s: float) -> None:
        while not over.wait(interval_s):
            try:
                with self._open_survey() as survey:
                    self._look_until(over, interval_s, survey)
            except OnceflowError:
                self._tell_blind()

    def _look_until(self, over: threading.Event, interval_s: float, survey: DeliverySurvey) -> None:
        seen: Sequence[InputFacts] = ()
        guard = RetentionGuard(
            survey.broker, lambda: positions_in(seen), self._clock, self._warn, "delivery"
        )
        while True:
            seen = survey.inputs()
            guard()
            self._tell(survey, seen, guard.left_s())
            if over.wait(interval_s):
                return

    def _tell(
        self, survey: DeliverySurvey, seen: Sequence[InputFacts], left_s: float | None
    ) -> None:
        self._is_seen = True
        oldest_ms = survey.oldest_waiting_ms(seen)
        waited_ms = 0 if oldest_ms is None else max(0, self._clock.unix_ms() - oldest_ms)
        self._report(
            "progress",
            lag=sum(one.lag for one in seen),
            lags={one.name: one.lag for one in seen},
            lag_s=round(waited_ms / 1000, 3),
            records_per_second=self._rate(sum(one.position for one in seen)),
            retention_left_s=left_s,
        )

    def _tell_blind(self) -> None:
        self._before = None
        if self._is_seen:
            self._is_seen = False
            self._report("progress", lag=None, lags={}, lag_s=None, records_per_second=None)

    def _rate(self, passed: int) -> float | None:
        now_s, before = self._clock.monotonic_s(), self._before
        self._before = now_s, passed
        if before is None or now_s <= before[0]:
            return None
        return round(max(0, passed - before[1]) / (now_s - before[0]), 1)

    def _warn(self, text: str) -> None:
        self._report("warning", text=text)

"""Posts a run's bulletins. Listens to what the run reports anyway, and passes it on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from onceflow.clock import Clock
from onceflow.contracts.connector import BulletinBoard
from onceflow.contracts.observer import Report
from onceflow.errors import OnceflowError, exit_code_of
from onceflow.protocol.bulletin import (
    END_KIND,
    MAX_TEXT,
    MAX_WHAT,
    RUNNING_KIND,
    Bulletin,
    Ending,
    StateFigures,
)

POST_INTERVAL_S = 1.0
"""Between two bulletins: an instance that stands by wants to know soon, and one costs little."""
END_TIMEOUT_S = 3.0
"""For the last one. Brokers that do not answer keep no process from ending."""
BEAT_INTERVAL_S = 0.5
BEATING_TIMEOUT_S = 150.0
"""For a start, and for a drain. An instance that stands by takes a longer one for hung."""


@dataclass
class Bulletins:
    """A report that lets other processes see its events, after it has passed them on.

    Beats and `progress` events drive it, all from one thread at a time, also while no batch ends. A
    board that cannot be used does not stop a run. The memory budget is that of the driver's heap.
    """

    board: BulletinBoard
    host: str
    memory_budget_bytes: int
    clock: Clock
    passed_on: Report
    _facts: dict[str, Any] = field(default_factory=dict)
    _next_s: float = 0.0
    _batch_at_ms: int = 0
    _first_state_rows: int | None = None

    def __call__(self, event: str, /, **facts: object) -> None:
        """Pass an event on, and post it."""
        self.passed_on(event, **facts)
        if event == "owner":
            self._facts["run_id"] = facts["run_id"]
        if event == "progress":
            self._take_in(facts)
            self.beat()

    def beat(self) -> None:
        """Show that the run goes on. Call as often as you like."""
        if self.clock.monotonic_s() < self._next_s:
            return
        self._next_s = self.clock.monotonic_s() + POST_INTERVAL_S
        self._quietly(lambda: self.board.post(RUNNING_KIND, self._bulletin().to_json()))

    def end(self, error: BaseException | None) -> None:
        """Post how the run ends; None is a good end. Takes at most `END_TIMEOUT_S`."""
        ending = Ending(
            run_id=self._facts.get("run_id", ""),
            host=self.host,
            at_ms=self.clock.unix_ms(),
            exit_code=exit_code_of(error),
            error=type(error).__name__ if error is not None else "",
            what=error.what[:MAX_WHAT] if isinstance(error, OnceflowError) else "",
            message=str(error)[:MAX_TEXT] if error is not None else "",
        )
        self._quietly(lambda: self.board.post(END_KIND, ending.to_json()))
        self._quietly(lambda: self.board.settle(self.clock.within(END_TIMEOUT_S)))
        self._quietly(self.board.close)

    def _take_in(self, facts: dict[str, Any]) -> None:
        if "spark_batch_id" in facts:
            self._batch_at_ms = self.clock.unix_ms()
        self._facts |= facts
        if self._first_state_rows is None:
            self._first_state_rows = facts.get("state_rows")

    def _bulletin(self) -> Bulletin:
        facts = self._facts
        return Bulletin(
            run_id=facts.get("run_id", ""),
            host=self.host,
            at_ms=self.clock.unix_ms(),
            batch_id=facts.get("spark_batch_id", -1),
            batch_at_ms=self._batch_at_ms,
            records_per_second=facts.get("records_per_second"),
            duration_ms=facts.get("duration_ms", {}),
            state=StateFigures(
                rows=facts.get("state_rows"),
                memory_bytes=facts.get("state_memory_bytes", 0),
                commit_ms=facts.get("state_commit_ms", 0),
                upload_ms=facts.get("state_upload_ms", 0),
            ),
            first_state_rows=self._first_state_rows,
            memory_budget_bytes=self.memory_budget_bytes,
            retention_left_s=facts.get("retention_left_s"),
        )

    def _quietly(self, call: Callable[[], None]) -> None:
        with suppress(OnceflowError):  # a lost bulletin does no harm
            call()


@contextmanager
def beating(beat: Callable[[], None], clock: Clock) -> Iterator[None]:
    """Call `beat` from another thread while a run's own thread is busy inside the block."""
    is_over = threading.Event()
    most = clock.within(BEATING_TIMEOUT_S)

    def beat_until_over() -> None:
        while not is_over.wait(BEAT_INTERVAL_S) and not most.is_over:
            beat()

    thread = threading.Thread(target=beat_until_over, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

"""Ticks: event time that goes on while a source is silent.

The driver knows the newest event time of the query's records; the process that plans a source's
batches knows whether the source is silent. What the driver knows goes there through a small file.
Decisions based on it are in the offset log before they have an effect, so a replay needs neither
the file nor a clock. Which event time a tick has, and why, is in `docs/design.md`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from onceflow.clock import Clock

if TYPE_CHECKING:
    # Needs much that workers, which read sources, do not.
    from onceflow.runtime.batch.executed import Execution

TICKS_PER_IDLE = 4
"""Steps that event time makes in `idle_after`. Each is two batches, of which the second closes
windows: more steps would cost more, fewer would leave less time for records that come late."""


@dataclass(frozen=True)
class EventTime:
    """How far the event time of a query has come.

    Args:
        newest_ms: of all records, by event time.
        at_s: when records came last, on the monotonic scale: all processes of a machine share it.
        is_awaited: whether there is state that event time may close.
    """

    newest_ms: int
    at_s: float
    is_awaited: bool

    def now_ms(self, clock: Clock) -> int:
        """Where it would be had records come ever since."""
        return self.newest_ms + round((clock.monotonic_s() - self.at_s) * 1000)


@dataclass(frozen=True)
class TickSettings:
    """Settings for the process that plans a source's batches."""

    idle_after_ms: int
    event_time_file: str


class EventTimeTeller:
    """The driver's half: tells how far event time has come, to sources that want to know."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._folder: TemporaryDirectory[str] | None = None
        self._told: EventTime | None = None

    def plan(self, idle_after_ms: int | None) -> TickSettings | None:
        """For a source; None if it has no `idle_after`."""
        if idle_after_ms is None:
            return None
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="onceflow-event-time-")
        return TickSettings(idle_after_ms, str(_file_in(self._folder)))

    def resume(self, newest_ms: int | None) -> None:
        """Go on where an earlier run has left off.

        The time since then does not count as silence: no source has looked for records meanwhile.
        """
        self._tell(newest_ms, is_awaited=True)

    def note(self, execution: Execution) -> Execution:
        """Take in a batch, and hand it on."""
        is_awaited = execution.state_rows > 0
        if execution.read:
            newest_ms = self._told.newest_ms if self._told else None
            self._tell(execution.newest_since(newest_ms), is_awaited=is_awaited)
        elif self._told:
            self._write(replace(self._told, is_awaited=is_awaited))
        return execution

    def close(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            self._folder.cleanup()

    def _tell(self, newest_ms: int | None, *, is_awaited: bool) -> None:
        if newest_ms is not None:
            self._write(EventTime(newest_ms, self._clock.monotonic_s(), is_awaited))

    def _write(self, told: EventTime) -> None:
        """So that who reads meanwhile has all of the old or all of the new."""
        self._told = told
        if self._folder is None:
            return
        file = _file_in(self._folder)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(asdict(told)))
        draft.replace(file)


class Ticker:
    """The planning half: decides when a source that is silent gets a tick, and which."""

    def __init__(self, plan: TickSettings, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._silent_since_s = clock.monotonic_s()

    def note_records(self) -> None:
        """The source is not silent."""
        self._silent_since_s = self._clock.monotonic_s()

    def due_ms(self, last_ms: int | None) -> int | None:
        """Event time of the tick that is due, if the source is silent; None if none is."""
        idle_after_ms = self._plan.idle_after_ms
        silence_ms = round((self._clock.monotonic_s() - self._silent_since_s) * 1000)
        told = _read(Path(self._plan.event_time_file)) if silence_ms >= idle_after_ms else None
        if told is None or not told.is_awaited:
            return None
        step_ms = idle_after_ms // TICKS_PER_IDLE
        tick_ms = told.now_ms(self._clock) - (idle_after_ms - step_ms)
        return tick_ms if last_ms is None or tick_ms >= last_ms + step_ms else None


def _file_in(folder: TemporaryDirectory[str]) -> Path:
    return Path(folder.name) / "event-time.json"


def _read(file: Path) -> EventTime | None:
    """None if nothing is known yet, and when the driver is gone."""
    try:
        return EventTime(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None

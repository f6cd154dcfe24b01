"""Several pipelines in one process: each runs, fails and starts again without the others.

What is desired of a pipeline and what is observed are two things; one thread for each pipeline
brings them together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from onceflow.clock import Clock
from onceflow.contracts.observer import Report
from onceflow.errors import OnceflowError, exit_code_of
from onceflow.serve.restarts import Restarts

WATCH_INTERVAL_S = 0.5
"""Between two looks at all pipelines: whether any is left."""
END_TIMEOUT_S = 300.0
"""For all pipelines to drain: more than one of them takes, as they do it at the same time."""
LOST_END_TIMEOUT_S = 10.0
"""For all to notice that what they need has ended, and to close. Their next starts decide what is
open, which is after this process."""


class Desired(StrEnum):
    """The desired state of a pipeline."""

    RUNNING = "running"
    STOPPED = "stopped"


class Observed(StrEnum):
    """The observed state of a pipeline."""

    STARTING = "starting"
    STANDBY = "standby"
    RUNNING = "running"
    DRAINING = "draining"
    WAITING = "waiting"
    """It failed, and will be started again."""
    FAILED = "failed"
    """It failed, and will not be started again by itself."""
    STOPPED = "stopped"


_OBSERVED_AT = {
    "standby": Observed.STANDBY,
    "taking_over": Observed.STARTING,
    "running": Observed.RUNNING,
    "delivering": Observed.RUNNING,
    "draining": Observed.DRAINING,
}
"""Events of a run that tell how far it is."""
_AT_REST = frozenset({Observed.STOPPED, Observed.WAITING, Observed.FAILED})


class DrainableRun(Protocol):
    """One run of a pipeline: `Application`."""

    def run(self) -> None:
        """Until it is drained or fails."""

    def request_drain(self) -> None:
        """End after the running batch."""


@dataclass(frozen=True)
class Status:
    """A pipeline at an instant."""

    name: str
    desired: Desired
    observed: Observed
    restarts: int
    """Starts after a failure, since the process began."""
    error: BaseException | None
    """The newest failure; None if there was none since the last order to start."""


class Member:
    """One pipeline of a fleet. Its methods may be called from any thread and return at once.

    `make` is called for each start; its run reports to what it is given. `report` is told what
    the run reports, and `failed`, `waiting` and `stopped`.
    """

    def __init__(
        self, name: str, make: Callable[[Report], DrainableRun], restarts: Restarts, report: Report
    ) -> None:
        self.name = name
        self._make = make
        self._restarts = restarts
        self._report = report
        self._desired = Desired.RUNNING
        self._observed = Observed.STOPPED
        self._error: BaseException | None = None
        self._run: DrainableRun | None = None
        self._is_drain_due = self._is_ending = False
        self._ordered = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._live, name=f"pipeline-{name}", daemon=True)

    def begin(self) -> None:
        """Let it live: it starts if it is to run. Once."""
        self._thread.start()

    def start(self) -> None:
        """Want it to run. Failures are counted from zero again."""
        self._order(Desired.RUNNING)

    def stop(self) -> None:
        """Want it stopped: the running batch commits first."""
        self._order(Desired.STOPPED, is_drained=True)

    def restart(self) -> None:
        """Want it stopped as by `stop`, and then started with its file as it is then."""
        self._order(Desired.RUNNING, is_drained=True)

    def end(self) -> None:
        """Stop it for good."""
        self._is_ending = True
        self.stop()

    def has_ended(self, timeout_s: float) -> bool:
        """Wait until it has, after `end`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> Status:
        """As it is now."""
        with self._lock:
            total = self._restarts.total
            return Status(self.name, self._desired, self._observed, total, self._error)

    def _order(self, desired: Desired, *, is_drained: bool = False) -> None:
        with self._lock:
            self._desired = desired
            # At once: a client that polls must not take the state before its order for the result.
            if self._observed in _AT_REST:
                if desired is Desired.RUNNING:
                    self._observed, self._error = Observed.STARTING, None
            elif is_drained:
                self._observed, self._is_drain_due = Observed.DRAINING, True
                if self._run is not None:
                    self._run.request_drain()
            self._ordered.set()

    def _live(self) -> None:
        while True:  # until `end`
            with self._lock:
                self._ordered.clear()
                if self._is_ending:
                    break
                is_wanted = self._desired is Desired.RUNNING
                self._observed = Observed.STARTING if is_wanted else Observed.STOPPED
                self._is_drain_due = False
            # None: without an order there is nothing to do.
            pause_s = self._attempt() if is_wanted else None
            if pause_s != 0 and self._ordered.wait(pause_s):
                self._restarts.forget()
        self._note(Observed.STOPPED)

    def _attempt(self) -> float | None:
        """Run once; returns seconds until the next attempt, None: only after an order."""
        self._error = None
        try:
            run = self._make(self._listen)
            with self._lock:
                self._run = run
                if self._is_drain_due:
                    run.request_drain()
            run.run()
        except Exception as error:  # noqa: BLE001  the others must not be touched by it
            return self._failed(error)
        finally:
            with self._lock:
                self._run = None
        is_over = self._desired is Desired.STOPPED
        if is_over:
            self._note(Observed.STOPPED)
        self._report("stopped")
        return None if is_over else 0.0

    def _failed(self, error: Exception) -> float | None:
        self._error = error
        pause_s = self._restarts.delay_after_s(error)
        is_over = pause_s is None
        self._note(Observed.FAILED if is_over else Observed.WAITING)
        text = str(error) or type(error).__name__
        self._report("failed", error=type(error).__name__, text=text, exit_code=exit_code_of(error))
        if not is_over:
            self._report("waiting", seconds=pause_s, failures_in_a_row=self._restarts.in_a_row)
        return pause_s

    def _listen(self, event: str, /, **facts: object) -> None:
        if event in _OBSERVED_AT and not self._is_drain_due:
            self._note(_OBSERVED_AT[event])
        if _OBSERVED_AT.get(event) is Observed.RUNNING:
            self._restarts.note_running()
        self._report(event, **facts)

    def _note(self, observed: Observed) -> None:
        with self._lock:
            self._observed = observed


class Fleet:
    """All pipelines of a process, by their names.

    `engine_loss` says why what all of them need has ended, None while it lasts. When `is_renewed`
    says that what they sign in with has changed, each is restarted after its running batch.
    """

    def __init__(
        self,
        members: Sequence[Member],
        engine_loss: Callable[[], OnceflowError | None],
        clock: Clock,
        is_renewed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.members = {member.name: member for member in members}
        self._engine_loss = engine_loss
        self._is_renewed = is_renewed
        self._clock = clock
        self._drain_requested = threading.Event()
        self.looked_at_s = clock.monotonic_s()
        """When all were looked at last."""
        self.has_lost_engine = False

    def statuses(self) -> Sequence[Status]:
        """The status of all pipelines, as they are now."""
        return [member.status() for member in self.members.values()]

    def is_draining(self) -> bool:
        """Whether it was asked to end."""
        return self._drain_requested.is_set()

    def request_drain(self) -> None:
        """End all after their running batches. Safe in a signal handler."""
        self._drain_requested.set()

    def run(self) -> None:
        """Run until all are drained, or have failed for good.

        Raises:
            OnceflowError: Spark has ended, and with it every pipeline.
            Exception: what a pipeline failed with, if all have.
        """
        for member in self.members.values():
            member.begin()
        try:
            while not self._drain_requested.wait(WATCH_INTERVAL_S):
                self._look()
        finally:
            self._end()

    def _look(self) -> None:
        self.looked_at_s = self._clock.monotonic_s()
        if (lost := self._engine_loss()) is not None:
            self.has_lost_engine = True
            raise lost
        if self._is_renewed():
            for status in self.statuses():
                if status.desired is Desired.RUNNING:
                    self.members[status.name].restart()
        found = self.statuses()
        errors = [status.error for status in found if status.observed is Observed.FAILED]
        if len(errors) == len(found) and errors[0] is not None:
            raise errors[0]

    def _end(self) -> None:
        timeout_s = LOST_END_TIMEOUT_S if self.has_lost_engine else END_TIMEOUT_S
        deadline = self._clock.within(timeout_s)
        for member in self.members.values():
            member.end()
        for member in self.members.values():
            member.has_ended(deadline.remaining_s())

"""Runs that are made of nothing, for whatever starts and drains runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from onceflow.contracts.observer import Report
from onceflow.serve.fleet import DrainableRun, Member, Observed
from tests.support.eventually import eventually

WAIT_S = 60.0


@dataclass
class FakeRun:
    """Runs until it is told to drain or to fail."""

    report: Report
    told: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self) -> None:
        self.report("running")
        assert self.told.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        self.report("draining")

    def request_drain(self) -> None:
        self.told.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.told.set()


@dataclass
class Maker:
    """Makes runs, and remembers them and what was reported."""

    runs: list[FakeRun] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    on_make: Callable[[], None] = lambda: None

    def __call__(self, report: Report) -> DrainableRun:
        self.on_make()
        if self.faults:
            raise self.faults.pop()
        self.runs.append(FakeRun(report))
        return self.runs[-1]

    def has_made(self, count: int) -> bool:
        return len(self.runs) >= count

    def listen(self, event: str, /, **facts: object) -> None:
        self.events.append(event)


def wait_until(member: Member, observed: Observed) -> None:
    eventually(lambda: member.status().observed, lambda found: found is observed)

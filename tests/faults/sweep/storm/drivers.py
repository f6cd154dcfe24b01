"""The service under a storm: started, watched, and started again as an orchestrator would."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from onceflow.clock import Clock
from tests.faults.sweep.storm.draw import TRANSACTION_TIMEOUT_S
from tests.support.drivers.service import Service, started

MAY_ALWAYS_END_WITH = frozenset({3, 5})
"""Brokers that did not answer in time, and an unknown outcome: start again."""
ENVIRONMENT = {"ONCEFLOW_TRANSACTION_TIMEOUT": f"{TRANSACTION_TIMEOUT_S:g} s"}
MAX_QUICK_ENDS = 10
"""Ends of its own, in a row, without a batch: then it will not come back by itself."""


@dataclass
class Running:
    """One process of the service.

    Args:
        number: from 1.
        service: the process.
        scope: ends it.
        started_ms: wall clock.
        may_end_with: exit codes that a fault gave it reason for.
        told: how often each event came so far.
        last: the newest event of each kind.
    """

    number: int
    service: Service
    scope: AbstractContextManager[Service]
    started_ms: int
    may_end_with: set[int] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    _read: int = 0

    @property
    def exit_code(self) -> int | None:
        return self.service.process.poll()

    def read_events(self) -> None:
        """Takes in what it printed since."""
        with (self.service.folder / "stdout").open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                event = json.loads(line)
                self.told[event["event"]] += 1
                self.last[event["event"]] = event


class Drivers:
    """One current driver, and any that a fault keeps running with it. Thread-safe.

    Args:
        folder: one folder below for each process.
        pipeline_file: what they run.
        bootstrap_servers: where.
        clock: for notes.
    """

    def __init__(
        self, folder: Path, pipeline_file: Path, bootstrap_servers: str, clock: Clock
    ) -> None:
        self.ends: Counter[int] = Counter()
        self.anomalies: list[str] = []
        self.started = 0
        self._folder = folder
        self._pipeline_file = pipeline_file
        self._bootstrap_servers = bootstrap_servers
        self._clock = clock
        self._all: list[Running] = []
        self._current: Running | None = None
        self._quick_ends = 0
        self._lock = threading.RLock()
        self._is_left_alone = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._all:
            running.scope.__exit__(None, None, None)

    @property
    def current(self) -> Running:
        with self._lock:
            assert self._current is not None
            return self._current

    @property
    def is_stuck(self) -> bool:
        return self._quick_ends >= MAX_QUICK_ENDS

    def start(self) -> Running:
        """Start one more, which becomes the current one."""
        with self._lock:
            self.started += 1
            scope = started(
                self._folder / f"driver-{self.started:04}",
                self._pipeline_file,
                self._bootstrap_servers,
                environment=ENVIRONMENT,
            )
            service = scope.__enter__()
            running = Running(self.started, service, scope, self._clock.unix_ms())
            self._all.append(running)
            self._current = running
            return running

    def supervise(self) -> None:
        """Read what they say; start the current one again if it has ended."""
        with self._lock:
            for running in list(self._all):
                running.read_events()
                if running.exit_code is not None:
                    self._ended(running)
            if self.current not in self._all and not self._is_left_alone:
                self.start()

    def drain(self, timeout_s: float) -> None:
        """End the current one in order; nothing is started again."""
        with self._lock:
            self._is_left_alone = True
            # By the signal itself, if it comes before Python has a handler for it.
            self.current.may_end_with |= {0, -signal.SIGTERM}
            self.current.service.send(signal.SIGTERM)
            self.current.service.process.wait(timeout_s)
            self.supervise()

    def _ended(self, running: Running) -> None:
        code = running.exit_code
        assert code is not None
        running.read_events()
        running.scope.__exit__(None, None, None)
        self._all.remove(running)
        self.ends[code] += 1
        if code not in running.may_end_with:
            self._quick_ends = 0 if running.told["batch"] else self._quick_ends + 1
        if code not in MAY_ALWAYS_END_WITH | running.may_end_with:
            self.anomalies.append(
                f"driver {running.number} ended with {code}: {_last_words(running.service.errors)}"
            )


def _last_words(errors: str) -> str:
    """The product's own last words, or else the end of the output."""
    told = [line for line in errors.splitlines() if line.startswith("onceflow:")]
    return told[-1] if told else errors[-500:]

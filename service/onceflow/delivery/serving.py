"""Many deliveries, or enrichments, in one process: wires them; answers Prometheus and probes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import TypeAlias

from onceflow.contracts.observer import Report
from onceflow.delivery.metrics import DeliveryMetrics, Statuses
from onceflow.delivery.model import Carriage
from onceflow.delivery.run import Around, run_carriage
from onceflow.errors import ConfigError
from onceflow.pipeline.file.policies import Restart
from onceflow.serve.fleet import Fleet, Member, Status
from onceflow.serve.monitoring import run_monitored
from onceflow.serve.renewal import Renewal
from onceflow.serve.restarts import Restarts
from onceflow.settings import Settings

Load: TypeAlias = Callable[[Path], Carriage]
"""Reads a file of one kind. It raises a ConfigError that lists every fault."""


class CarriageRun:
    """One run, with its file as it is now. For `serve.fleet.Member`."""

    def __init__(self, carriage: Carriage, around: Around) -> None:
        self._carriage = carriage
        self._stop = threading.Event()
        self._around = replace(around, stop=self._stop)

    def run(self) -> None:
        """Until it is drained or fails; see `run_carriage`."""
        run_carriage(self._carriage, self._around)

    def request_drain(self) -> None:
        """End after the running batch."""
        self._stop.set()


class CarriageService:
    """All deliveries, or all enrichments, of a process. A fault in one does not touch the others.

    Args:
        files: of one kind. One that is faulty fails by itself, where everybody sees it.
        load: reads such a file, at every start.
        metrics: makes the metrics, of what tells the statuses and of versions.
        around: lent to each run; its connection is made again for each, and its report is not used.
        report_of: makes the report of each by its name, and that of the service for "".

    Raises:
        ConfigError: two files have the same name in them.
    """

    def __init__(
        self,
        files: Sequence[Path],
        load: Load,
        metrics: Callable[[Statuses, Mapping[str, str]], DeliveryMetrics],
        settings: Settings,
        around: Around,
        report_of: Callable[[str], Report],
    ) -> None:
        self._load = load
        self._settings = settings
        self._around = around
        self._report = report_of("")
        self.metrics = metrics(self._statuses, {"version": version("onceflow")})
        names = {file: self._name_in(file) for file in files}
        twice = [name for name, count in Counter(names.values()).items() if count > 1]
        if twice:
            found = ", ".join(str(file) for file, name in names.items() if name == twice[0])
            what = "two files have the same name in them"
            raise ConfigError(what, subject=twice[0], found=found, then="nothing was started")
        members = [self._member(name, file, report_of(name)) for file, name in names.items()]
        renewal = Renewal(settings.secret_files(), around.clock)
        self.fleet = Fleet(members, lambda: None, around.clock, renewal.is_due)

    def run(self) -> None:
        """Run until all are drained, or have failed for good; answer HTTP meanwhile.

        Raises:
            ConfigError: a port is taken; nothing was started.
            Exception: as `Fleet.run`.
        """
        registry, clock = self.metrics.registry, self._around.clock
        run_monitored(self.fleet, registry, self._settings.monitoring, clock, self._report)

    def _member(self, name: str, file: Path, report: Report) -> Member:
        listeners = (self.metrics.report_of(name), report)

        def make(listener: Report) -> CarriageRun:
            # On every start: the file may have been fixed, or a secret renewed.
            connection = self._settings.connection()
            return CarriageRun(
                self._load(file), replace(self._around, connection=connection, report=listener)
            )

        def tell(event: str, /, **facts: object) -> None:
            for listener in listeners:
                listener(event, **facts)

        return Member(name, make, Restarts(Restart(), self._around.clock, SystemRandom()), tell)

    def _statuses(self) -> Sequence[Status]:
        """For the metrics, which exist before the fleet that reports to them."""
        return self.fleet.statuses()

    def _name_in(self, file: Path) -> str:
        """The name in the file, or the file's own if it is faulty."""
        try:
            return self._load(file).name
        except ConfigError:
            return file.stem

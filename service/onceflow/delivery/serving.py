"""Many deliveries, or enrichments, in one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry

from onceflow.contracts.connector import Connection
from onceflow.contracts.observer import Report
from onceflow.delivery.history import CarriageHistory
from onceflow.delivery.metrics import DeliveryMetrics, Statuses
from onceflow.delivery.model import Carriage
from onceflow.delivery.run import Around, run_carriage
from onceflow.errors import ConfigError
from onceflow.serve.fleet import DrainableRun
from onceflow.serve.light import LightService
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


class CarriageService(LightService[CarriageHistory]):
    """All deliveries, or all enrichments, of a process.

    Args:
        files: of one kind. One that is faulty fails by itself, where everybody sees it.
        load: reads such a file, at every start.
        metrics: makes the metrics, of what tells the statuses and of versions.
        settings: of the process, and each with its origin.
        around: lent to each run; its connection is made again for each, and its report is not used.
        report_of: as of `LightService`.

    Raises:
        ConfigError: two files have the same name in them.
    """

    def __init__(
        self,
        files: Sequence[Path],
        load: Load,
        metrics: Callable[[Statuses, Mapping[str, str]], DeliveryMetrics],
        settings: tuple[Settings, Sequence[Mapping[str, Any]]],
        around: Around,
        report_of: Callable[[str], Report],
    ) -> None:
        self._load = load
        self.around = around
        self.metrics = metrics(self.statuses, {"version": version("onceflow")})
        names = {file: self._name_in(file) for file in files}
        twice = [name for name, count in Counter(names.values()).items() if count > 1]
        if twice:
            found = ", ".join(str(file) for file, name in names.items() if name == twice[0])
            what = "two files have the same name in them"
            raise ConfigError(what, subject=twice[0], found=found, then="nothing was started")
        by_name = {name: file for file, name in names.items()}
        super().__init__(by_name, *settings, around.clock, report_of)

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics of all of them."""
        return self.metrics.registry

    def history(self) -> CarriageHistory:
        """Make what listens to the runs of one."""
        return CarriageHistory(self.around.clock)

    def listener(self, name: str) -> Report:
        """Make what counts the events of one."""
        return self.metrics.report_of(name)

    def make(self, name: str, connection: Connection, report: Report) -> DrainableRun:
        """Make a run of the file as it is now."""
        around = replace(self.around, connection=connection, report=report)
        return CarriageRun(self.load(name), around)

    def load(self, name: str) -> Carriage:
        """Read the file of this name as it is now.

        Raises:
            ConfigError: lists every fault.
        """
        return self._load(self.files[name])

    def _name_in(self, file: Path) -> str:
        """The name in the file, or the file's own if it is faulty."""
        try:
            return self._load(file).name
        except ConfigError:
            return file.stem

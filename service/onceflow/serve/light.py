"""Files of one kind that needs no Spark, in one process: wires them, and answers Prometheus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection
from onceflow.contracts.observer import Report
from onceflow.pipeline.file.policies import Restart
from onceflow.serve.fleet import DrainableRun, Fleet, Member, Status
from onceflow.serve.hour import Hour
from onceflow.serve.monitoring import run_monitored
from onceflow.serve.renewal import Renewal
from onceflow.serve.restarts import Restarts
from onceflow.settings import Settings

H = TypeVar("H", bound=Hour)


class LightService(ABC, Generic[H]):
    """All files of a process. A fault in one does not touch the others.

    Args:
        files: each by the name in it.
        effective: the settings, each with name, value and origin.
        report_of: makes the report of each by its name, and that of the service for "".
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        settings: Settings,
        effective: Sequence[Mapping[str, Any]],
        clock: Clock,
        report_of: Callable[[str], Report],
    ) -> None:
        self.files = files
        self.settings = settings
        self.effective = effective
        self.clock = clock
        self._report = report_of("")
        self.histories = {name: self.history() for name in files}
        """What happened to each in the last hour."""
        members = [self._member(name, report_of(name)) for name in files]
        renewal = Renewal(self.renewed(), clock)
        self.fleet = Fleet(members, lambda: None, clock, renewal.is_due)

    @property
    @abstractmethod
    def registry(self) -> CollectorRegistry:
        """The metrics of all of them."""

    @abstractmethod
    def history(self) -> H:
        """Make what listens to the runs of one, for the charts of its page."""

    @abstractmethod
    def listener(self, name: str) -> Report:
        """Make what counts the events of one, for the metrics."""

    @abstractmethod
    def make(self, name: str, connection: Connection, report: Report) -> DrainableRun:
        """Make a run of the file as it is now.

        Raises:
            ConfigError: lists every fault in it.
        """

    def renewed(self) -> Sequence[Path]:
        """Name the files that are read at a start only: when they change, all start again."""
        return self.settings.secret_files()

    def run(self) -> None:
        """Run until all are drained, or have failed for good; answer HTTP meanwhile.

        Raises:
            ConfigError: a port is taken; nothing was started.
            Exception: as `Fleet.run`.
        """
        run_monitored(self.fleet, self.registry, self.settings.monitoring, self.clock, self._report)

    def statuses(self) -> Sequence[Status]:
        """For the metrics, which exist before the fleet that reports to them."""
        return self.fleet.statuses()

    def _member(self, name: str, report: Report) -> Member:
        listeners = (self.listener(name), self.histories[name], report)

        def make(listener: Report) -> DrainableRun:
            # On every start: the file may have been fixed, or a secret renewed.
            return self.make(name, self.settings.connection(), listener)

        def tell(event: str, /, **facts: object) -> None:
            for listener in listeners:
                listener(event, **facts)

        return Member(name, make, Restarts(Restart(), self.clock, SystemRandom()), tell)

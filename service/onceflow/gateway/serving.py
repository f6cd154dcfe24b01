"""A gateway that is started again if it fails, and that Prometheus and probes watch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom

from onceflow.contracts.observer import Report
from onceflow.errors import ConfigError
from onceflow.gateway.loader import load_gateway
from onceflow.gateway.metrics import GatewayMetrics
from onceflow.gateway.run import Around, Instance, run_gateway
from onceflow.pipeline.file.policies import Restart
from onceflow.serve.fleet import Fleet, Member, Status
from onceflow.serve.monitoring import run_monitored
from onceflow.serve.renewal import Renewal
from onceflow.serve.restarts import Restarts
from onceflow.settings import Settings


class GatewayRun:
    """One run of a gateway, with its file as it is now. For `serve.fleet.Member`."""

    def __init__(self, file: Path, around: Around) -> None:
        self._loaded = load_gateway(file)
        self._stop = threading.Event()
        self._around = replace(around, stop=self._stop)

    def run(self) -> None:
        """Until it is drained or fails; see `run_gateway`."""
        run_gateway(self._loaded, self._around)

    def request_drain(self) -> None:
        """End after the posts that wait."""
        self._stop.set()


class GatewayService:
    """The gateway of a process.

    Args:
        files: one; a process answers at one port.
        around: lent to each run; its connection is made again for each, and its report is not used.

    Raises:
        ConfigError: there are more files; or it is faulty.
    """

    def __init__(
        self, files: Sequence[Path], settings: Settings, around: Around, report: Report
    ) -> None:
        if len(files) != 1:
            what = "one process serves one gateway: it answers at one port"
            raise ConfigError(what, found=f"{len(files)} files", then="name all topics in one file")
        self._file, self._settings, self._around = files[0], settings, around
        self._report = report
        name = load_gateway(self._file).name
        self.metrics = GatewayMetrics(name, self._statuses, {"version": version("onceflow")})
        restarts = Restarts(Restart(), around.clock, SystemRandom())
        member = Member(name, self._make, restarts, self._tell)
        server = around.server
        own = (server.certificate_file, server.key_file, server.ca_file)
        files = [*settings.secret_files(), *(Path(name) for name in own if name)]
        renewal = Renewal(files, around.clock)
        self.fleet = Fleet([member], lambda: None, around.clock, renewal.is_due)

    def run(self) -> None:
        """Run until it is drained, or has failed for good; answer Prometheus meanwhile.

        Raises:
            ConfigError: a port is taken; nothing was started.
            Exception: as `Fleet.run`.
        """
        registry, clock = self.metrics.registry, self._around.clock
        run_monitored(self.fleet, registry, self._settings.monitoring, clock, self._report)

    def _make(self, listener: Report) -> GatewayRun:
        # On every start: the file may have been fixed, or a secret renewed.
        connection = self._settings.connection()
        around = replace(
            self._around,
            connection=connection,
            report=listener,
            observed=self.metrics.answered,
            started=self._started,
        )
        return GatewayRun(self._file, around)

    def _started(self, instance: Instance) -> None:
        self.metrics.figures = instance.figures

    def _tell(self, event: str, /, **facts: object) -> None:
        self.metrics.hear(event, **facts)
        self._report(event, **facts)

    def _statuses(self) -> Sequence[Status]:
        """For the metrics, which exist before the fleet that reports to them."""
        return self.fleet.statuses()

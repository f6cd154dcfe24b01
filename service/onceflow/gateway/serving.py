"""A gateway that is started again if it fails, and that Prometheus, probes and people watch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from onceflow.contracts.connector import Connection
from onceflow.contracts.observer import Report
from onceflow.errors import ConfigError
from onceflow.gateway.history import GatewayHistory, sampling
from onceflow.gateway.loader import load_gateway
from onceflow.gateway.metrics import GatewayMetrics
from onceflow.gateway.run import Around, Instance, run_gateway
from onceflow.serve.fleet import DrainableRun
from onceflow.serve.light import LightService
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


class GatewayService(LightService[GatewayHistory]):
    """The gateway of a process.

    Args:
        files: one; a process answers at one port.
        settings: of the process, and each with its origin.
        around: lent to each run; its connection is made again for each, and its report is not used.
        report: of all.

    Raises:
        ConfigError: there are more files; or it is faulty.
    """

    def __init__(
        self,
        files: Sequence[Path],
        settings: tuple[Settings, Sequence[Mapping[str, Any]]],
        around: Around,
        report: Report,
    ) -> None:
        if len(files) != 1:
            what = "one process serves one gateway: it answers at one port"
            raise ConfigError(what, found=f"{len(files)} files", then="name all topics in one file")
        self.around = around
        self._name = load_gateway(files[0]).name
        self.metrics = GatewayMetrics(self._name, self.statuses, {"version": version("onceflow")})
        by_name = {self._name: files[0]}
        super().__init__(by_name, *settings, around.clock, lambda _: report)

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics of the gateway."""
        return self.metrics.registry

    def history(self) -> GatewayHistory:
        """Make what listens to its runs."""
        return GatewayHistory(self.around.clock)

    def listener(self, name: str) -> Report:
        """Count its failures."""
        return self.metrics.hear

    def make(self, name: str, connection: Connection, report: Report) -> DrainableRun:
        """Make a run of the file as it is now."""
        around = replace(
            self.around,
            connection=connection,
            report=report,
            observed=self.metrics.answered,
            started=self._started,
            refused=self.histories[name].refused,
        )
        return GatewayRun(self.files[name], around)

    def renewed(self) -> Sequence[Path]:
        """Add its own certificate and the authorities of its callers."""
        server = self.around.server
        own = (server.certificate_file, server.key_file, server.ca_file)
        return [*super().renewed(), *(Path(name) for name in own if name)]

    def run(self) -> None:
        """Run it, and take samples for its page."""
        with sampling(lambda: self.histories[self._name].take(self.metrics.totals())):
            super().run()

    def _started(self, instance: Instance) -> None:
        self.metrics.figures = instance.figures

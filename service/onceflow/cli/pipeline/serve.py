"""`onceflow serve`: many pipelines in one process, each started again when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile


def serve(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", help="Pipeline files, and folders in which every YAML file is one."
        ),
    ],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Take over each pipeline when the instance that runs it is gone."
        ),
    ] = False,
) -> None:
    """Run many pipelines. A fault in one does not touch the others.

    SIGTERM and Ctrl-C let the running batches commit, then end. A pipeline that fails is started
    again as its `restart` says. Answers Prometheus and probes (`monitoring`), and orders
    (`control`). The process ends by itself only when every pipeline has failed for good, with the
    code of the first one's error.
    """
    import os
    from contextlib import ExitStack

    from onceflow.app import RunOptions
    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.cli.shared.report import open_fleet_report
    from onceflow.clock import SystemClock
    from onceflow.config import read_settings
    from onceflow.control.api import controlled
    from onceflow.serve.ending import drain_on_signals
    from onceflow.serving import Service, find_entries

    entries = find_entries(paths)
    overrides = {"bootstrap_servers": bootstrap_servers}
    settings, effective = read_settings(os.environ, overrides, config)
    clock = SystemClock()
    around = open_surroundings(settings, clock)
    options = RunOptions(is_standby=standby, transaction_timeout_s=settings.transaction_timeout_s)
    with ExitStack() as stack:
        report_of = stack.enter_context(open_fleet_report(clock))
        service = Service(entries, settings, effective, around, options, report_of)
        if settings.control is not None:
            stack.enter_context(controlled(service, settings.control, report_of("")))
        stack.enter_context(drain_on_signals(service.fleet.request_drain))
        service.run()

"""`onceflow serve`: many pipelines or deliveries in one process, each started again if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.kinds.commands import commands_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile
from onceflow.errors import ConfigError
from onceflow.pipeline.file.kinds import FileKind


def serve(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Files of one kind, and folders in which every YAML file is one.",
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
    """Run many files of one kind. A fault in one does not touch the others.

    SIGTERM and Ctrl-C let the running batches commit, then end. A pipeline that fails is started
    again as its `restart` says. Answers Prometheus and probes (`monitoring`), and shows a page and
    takes orders (`control`). The process ends by itself only when everything in it has failed
    for good, with the code of the first error.
    """
    from onceflow.serve.files import find_files

    files = find_files(paths)
    overrides = {"bootstrap_servers": bootstrap_servers}
    commands = commands_of(_kind_of_all(files))
    if commands is None:
        _serve_pipelines(files, overrides, config, is_standby=standby)
    elif standby:
        expected = "no --standby: start the service twice, and the instances share the work"
        raise ConfigError("this option is of pipelines", expected=expected)
    else:
        commands.serve(files, overrides, config)


def _kind_of_all(files: Sequence[Path]) -> FileKind:
    """The kind of all files.

    Raises:
        ConfigError: they are of several kinds.
    """
    from onceflow.pipeline.file.loader import kind_of

    kinds = {file: kind_of(file) for file in files}
    if len({*kinds.values()}) > 1:
        raise ConfigError(
            "one process serves files of one kind",
            found=", ".join(f"{file} ({kind})" for file, kind in kinds.items()),
            then="nothing was started. Only pipelines need Spark: serve others from a folder of"
            " their own",
        )
    return next(iter(kinds.values()))


def _serve_pipelines(
    files: Sequence[Path],
    overrides: Mapping[str, str | None],
    config: Path | None,
    *,
    is_standby: bool,
) -> None:
    import os
    from contextlib import ExitStack

    from onceflow.app import RunOptions
    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.cli.shared.report import open_fleet_report
    from onceflow.clock import SystemClock
    from onceflow.config import read_settings
    from onceflow.control.api import controlled
    from onceflow.control.pipelines import PipelineViews
    from onceflow.serve.ending import drain_on_signals
    from onceflow.serving import Service, find_entries

    entries = find_entries(files)
    settings, effective = read_settings(os.environ, overrides, config)
    clock = SystemClock()
    around = open_surroundings(settings, clock)
    options = RunOptions(
        is_standby=is_standby, transaction_timeout_s=settings.transaction_timeout_s
    )
    with ExitStack() as stack:
        report_of = stack.enter_context(open_fleet_report(clock))
        service = Service(entries, settings, effective, around, options, report_of)
        if settings.control is not None:
            views = PipelineViews(service)
            stack.enter_context(controlled(views, settings.control, report_of("")))
        stack.enter_context(drain_on_signals(service.fleet.request_drain))
        service.run()

"""`onceflow run`: one pipeline until it has caught up, is drained, or fails."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.options import BootstrapServers, ConfigFile, settings_of

if TYPE_CHECKING:
    from onceflow.app import Application, RunOptions
    from onceflow.assembly import Surroundings
    from onceflow.clock import Clock
    from onceflow.protocol.compare import Remedy
    from onceflow.runtime.progress import Report


CONNECTOR = "kafka"
"""The only kind of source and sink so far."""


class Until(StrEnum):
    """When a run ends by itself."""

    CAUGHT_UP = "caught-up"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(  # noqa: PLR0913, PLR0917  options of a command line
    file: Annotated[Path, typer.Argument(help="The pipeline file.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    until: Annotated[
        Until | None,
        typer.Option(help="End when everything that is there now is processed."),
    ] = None,
    new_generation: Annotated[
        bool,
        typer.Option(
            "--new-generation",
            help="Go on writing to the same output under a new checkpoint; needs --reason.",
        ),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Make the checkpoint's plan follow the ledger; needs --reason."
        ),
    ] = False,
    accept_change: Annotated[
        bool,
        typer.Option(
            "--accept-change",
            help="Go on although the query is another one than before; needs --reason.",
        ),
    ] = False,
    reason: Annotated[
        str, typer.Option(help="Why; recorded in the ledger with what it led to.")
    ] = "",
) -> None:
    """Run a pipeline. SIGTERM and Ctrl-C let the running batch commit, then end it."""
    from onceflow.app import RunOptions
    from onceflow.cli.report import open_report
    from onceflow.clock import SystemClock
    from onceflow.ops.drain import drain_on_signals

    _check_remedies([new_generation, adopt, accept_change], reason)
    options = RunOptions(
        is_until_caught_up=until is Until.CAUGHT_UP,
        remedy=_remedy(new_generation=new_generation, adopt=adopt),
        is_change_accepted=accept_change,
        reason=reason,
    )
    clock = SystemClock()
    with open_report(clock) as report:
        application = open_application(file, bootstrap_servers, config, options, report)
        with drain_on_signals(application.request_drain):
            application.run()


def open_application(
    file: Path,
    bootstrap_servers: str | None,
    config: Path | None,
    options: RunOptions,
    report: Report,
) -> Application:
    """Load the file and the settings.

    Raises:
        ConfigError: lists every fault in them.
    """
    from dataclasses import replace

    from onceflow.app import Application
    from onceflow.clock import SystemClock
    from onceflow.ops.bulletins import Bulletins
    from onceflow.ops.exit_watch import end_within
    from onceflow.pipeline.loader import load_pipeline

    clock = SystemClock()
    pipeline = load_pipeline(file)
    around = open_surroundings(bootstrap_servers, config, clock)
    board = around.connector.bulletin_board(pipeline.pipeline.name, around.connection)
    budget_bytes = settings_of(bootstrap_servers, config).spark.driver_memory_bytes
    bulletins = Bulletins(board, socket.gethostname(), budget_bytes, clock, report)

    def before_close(error: BaseException | None) -> None:
        end_within(error)
        bulletins.end(error)

    around = replace(around, report=bulletins, before_close=before_close)
    return Application(pipeline, options, around)


def open_surroundings(
    bootstrap_servers: str | None, config: Path | None, clock: Clock
) -> Surroundings:
    """What a run gets from this process and its settings. Reports go nowhere yet.

    Raises:
        ConfigError: the settings are wrong, or there is no Java.
    """
    from onceflow.assembly import Surroundings
    from onceflow.contracts.connector import find_connector
    from onceflow.devkit.java import find_java
    from onceflow.runtime.session import SessionSettings

    settings = settings_of(bootstrap_servers, config)
    find_java()
    return Surroundings(
        connector_name=CONNECTOR,
        connector=find_connector(CONNECTOR),
        connection=settings.connection(),
        session=SessionSettings(**settings.spark.model_dump()),
        clock=clock,
        report=lambda event, /, **facts: None,
    )


def _check_remedies(asked_for: Sequence[bool], reason: str) -> None:
    from onceflow.errors import ConfigError

    if sum(asked_for) > 1:
        expected = "--new-generation, --adopt or --accept-change"
        raise ConfigError("one remedy at a time", expected=expected)
    if any(asked_for) and not reason:
        raise ConfigError(
            "a remedy needs a reason",
            expected="--reason TEXT",
            then="it is recorded in the ledger for whoever looks at it later",
        )


def _remedy(*, new_generation: bool, adopt: bool) -> Remedy | None:
    from onceflow.protocol.compare import Remedy

    if new_generation:
        return Remedy.NEW_GENERATION
    return Remedy.ADOPT if adopt else None

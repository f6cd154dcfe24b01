"""`onceflow run`: one pipeline or delivery until it has caught up, is drained, or fails."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.shared.options import (
    BootstrapServers,
    ConfigFile,
    kafka,
    load_allowed,
    settings_of,
)
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.app import Application, RunOptions
    from onceflow.clock import Clock
    from onceflow.contracts.observer import Report
    from onceflow.pipeline.file.loader import PipelineFile
    from onceflow.run import Surroundings
    from onceflow.settings import Settings


class Until(StrEnum):
    """When a run ends by itself."""

    CAUGHT_UP = "caught-up"


def run(  # noqa: PLR0913, PLR0917  options of a command line
    file: Annotated[Path, typer.Argument(help="The file, of any kind.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    until: Annotated[
        Until | None,
        typer.Option(help="Stop when everything that is there now has been processed."),
    ] = None,
    new_generation: Annotated[
        bool,
        typer.Option(
            "--new-generation",
            help="Start over with a new checkpoint and the same output. Needs --reason.",
        ),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Rewrite the checkpoint's last planned batch from the ledger. Needs --reason.",
        ),
    ] = False,
    accept_change: Annotated[
        bool,
        typer.Option(
            "--accept-change",
            help="Continue although the query has changed. Needs --reason.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="Why you do this. Recorded in the ledger.")] = "",
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait with Spark started, and take over when the other instance is gone.",
        ),
    ] = False,
) -> None:
    """Run a file of any kind. SIGTERM and Ctrl-C let the running batch commit first.

    A start that is refused names its remedy: --adopt, --new-generation or --accept-change.
    """
    remedies = [new_generation, adopt, accept_change]
    if (commands := commands_for(file)) is not None:
        _check_options([standby, reason, *remedies])
        settings = settings_of(bootstrap_servers, config)
        commands.run(file, settings, is_until_caught_up=until is Until.CAUGHT_UP)
        return
    from onceflow.app import RunOptions
    from onceflow.protocol.compare import Remedy

    _check_remedies(remedies, reason)
    if standby and (until or any(remedies)):
        raise ConfigError(
            "--standby goes with nothing that is done once",
            expected="neither --until nor a remedy",
            then="nothing was started",
        )
    remedy = Remedy.ADOPT if adopt else None
    options = RunOptions(
        is_until_caught_up=until is Until.CAUGHT_UP,
        remedy=Remedy.NEW_GENERATION if new_generation else remedy,
        is_change_accepted=accept_change,
        reason=reason,
        is_standby=standby,
    )
    _run_pipeline(file, bootstrap_servers, config, options)


def _run_pipeline(
    file: Path, bootstrap_servers: str | None, config: Path | None, options: RunOptions
) -> None:
    from onceflow.cli.shared.report import open_report
    from onceflow.clock import SystemClock
    from onceflow.serve.ending import drain_on_signals

    clock = SystemClock()
    with open_report(clock) as report:
        settings = settings_of(bootstrap_servers, config)
        application = open_application(load_allowed(file, settings), settings, options, report)
        with drain_on_signals(application.request_drain):
            application.run()


def _check_options(of_pipelines: Sequence[object]) -> None:
    if any(of_pipelines):
        raise ConfigError("these options are of pipelines", expected="no option but --until")


def open_application(
    file: PipelineFile, settings: Settings, options: RunOptions, report: Report
) -> Application:
    """Wire a run of a pipeline.

    Raises:
        ConfigError: a secret cannot be read, or there is no Java.
    """
    from dataclasses import replace

    from onceflow.app import with_bulletins
    from onceflow.clock import SystemClock
    from onceflow.serve.ending import end_within

    around = replace(open_surroundings(settings, SystemClock()), report=report)
    options = replace(options, transaction_timeout_s=settings.transaction_timeout_s)
    return with_bulletins(file, options, around, end_within)


def open_surroundings(settings: Settings, clock: Clock) -> Surroundings:
    """Make what a run gets from this process and its settings. Reports go nowhere yet.

    Raises:
        ConfigError: a secret cannot be read, or there is no Java.
    """
    from onceflow.java.choice import find_java
    from onceflow.run import Surroundings
    from onceflow.runtime.spark.session import SessionSettings

    find_java()
    return Surroundings(
        connector=kafka(),
        connection=settings.connection(),
        session=SessionSettings(**settings.spark.model_dump()),
        clock=clock,
        report=lambda event, /, **facts: None,
        checkpoint_waiver=settings.ephemeral_checkpoints,
    )


def _check_remedies(asked_for: Sequence[bool], reason: str) -> None:
    if sum(asked_for) > 1:
        expected = "--new-generation, --adopt or --accept-change"
        raise ConfigError("one remedy at a time", expected=expected)
    if any(asked_for) and not reason:
        raise ConfigError(
            "a remedy needs a reason",
            expected="--reason TEXT",
            then="it is recorded in the ledger for later readers",
        )

"""`onceflow skip`: leave out records that a delivery or an enrichment has not carried yet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.contracts.connector import Place
    from onceflow.contracts.values import Starting


def skip(
    file: Annotated[Path, typer.Argument(help="The file of a delivery or an enrichment.")],
    to: Annotated[
        list[str],
        typer.Option(
            metavar="PLACE",
            help="`latest`, a time such as 2026-11-01T00:00:00Z, or the next record to deliver,"
            " such as views[0]@1234; several of these for several partitions.",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Left out: only show it.")] = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Skip records that were not delivered yet. A gap record in the dead-letter topic names them.

    Stop the delivery first. The records stay in their topic.
    """
    from onceflow.cli.kinds.carriages import CarriageCommands
    from onceflow.cli.kinds.commands import commands_for
    from onceflow.delivery.model import Lent
    from onceflow.delivery.skipping import Skipping
    from onceflow.pipeline.file.loader import kind_of

    commands = commands_for(file)
    if not isinstance(commands, CarriageCommands):
        kind = kind_of(file)
        what = (
            f"this is {kind.with_article}, and this command takes deliveries and enrichments only"
        )
        raise ConfigError(what, subject=str(file), then="nothing was skipped")
    goal = _goal(to)
    connection = settings_of(bootstrap_servers, config).connection()
    lent = Lent(kafka(), connection, SystemClock(), lambda event, /, **facts: None)
    with closing(Skipping(commands.load(file), lent)) as skipping:
        leaps = skipping.leaps(goal)
        if not leaps:
            typer.echo("nothing to skip")
        elif yes:
            for leap, records in skipping.carry_out(leaps):
                topic, partition = leap.place
                typer.echo(f"{topic}[{partition}]: skipped {records:,} records, to {leap.end}")
        else:
            for leap in leaps:
                topic, partition = leap.place
                typer.echo(
                    f"{topic}[{partition}]: would skip offsets {leap.start} to {leap.end - 1}"
                )
            typer.echo("nothing was skipped; add `--yes` to do it")


def _goal(to: list[str]) -> Starting | dict[Place, int]:
    from datetime import datetime

    from onceflow.delivery.skipping import parse_place

    if to == ["latest"]:
        return "latest"
    if len(to) == 1 and "@" not in to[0]:
        try:
            instant = datetime.fromisoformat(to[0])
        except ValueError:
            instant = None
        if instant is not None and instant.tzinfo is not None:
            return instant
    return dict(map(parse_place, to))

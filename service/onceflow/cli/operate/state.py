"""`onceflow state`: moves the state of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, load_allowed, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_result
from onceflow.clock import SystemClock

group = typer.Typer(no_args_is_help=True, help="Move the state of a pipeline.")


@group.callback()
def _state() -> None:
    """Keep the name of the only command."""


@group.command()
def migrate(  # noqa: PLR0913, PLR0917  options of a command line
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.")],
    shuffle_partitions: Annotated[int, typer.Option(help="Partitions of the state.", min=1)],
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="The new checkpoint. Default: the old one, `-` and the number of partitions."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Copy the checkpoint of a stopped pipeline, with its state in another number of partitions."""
    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.migrate import migrate_state

    settings = settings_of(bootstrap_servers, config)
    file = load_allowed(pipeline, settings)
    location = to or f"{file.pipeline.checkpoint_location}-{shuffle_partitions}"
    around = open_surroundings(settings, SystemClock())
    head = migrate_state(file, location, shuffle_partitions, reason, around)
    fields = {"checkpoint": location, "batch_id": head.batch.batch_id}
    text = (
        f"{shuffle_partitions} partitions of state, after batch {head.batch.batch_id}\n"
        f"name it in {pipeline}, then start the pipeline: `checkpoint: {location}`"
    )
    print_result(output, fields, text)

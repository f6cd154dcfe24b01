"""`onceflow dev`: a real Kafka on this machine, without Docker."""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.cli.shared.output import OutputOption, ResultFormat, print_result
from onceflow.clock import SystemClock

group = typer.Typer(help="A real Kafka on this machine, without Docker.", no_args_is_help=True)


@group.command()
def up(
    brokers: Annotated[
        int, typer.Option(min=1, max=3, help="1, or 3 to survive the loss of one.")
    ] = 1,
) -> None:
    """Start a real Kafka on this machine, without Docker. Prints its address.

    It runs until `onceflow dev down`.
    """
    from onceflow.devkit.dev_broker import start_detached

    started = start_detached(brokers, SystemClock())
    typer.echo(f"export ONCEFLOW_BOOTSTRAP_SERVERS={started.bootstrap_servers}")


@group.command()
def down(
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep topics for the next `dev up`.")
    ] = False,
) -> None:
    """Stop the Kafka of `dev up` and remove its data."""
    from onceflow.devkit.dev_broker import remove_data, stop_detached

    stopped = stop_detached(SystemClock())
    if not keep_data:
        remove_data()
    typer.echo(f"stopped {stopped.bootstrap_servers}" if stopped else "nothing was running")


@group.command()
def status(output: OutputOption = ResultFormat.TEXT) -> None:
    """Show whether the Kafka of `dev up` runs, and its address."""
    from onceflow.devkit.dev_broker import running

    found = running()
    text = "not running"
    if found is not None:
        what = "1 broker" if found.brokers == 1 else f"{found.brokers} brokers"
        text = f"running: {what} at {found.bootstrap_servers}"
    print_result(output, {"running": found is not None, **(vars(found) if found else {})}, text)

"""`onceflow dev`: a real Kafka on this machine, without Docker."""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(help="A real Kafka on this machine, without Docker.")
    commands.command("up")(up)
    commands.command("down")(down)
    commands.command("status")(status)
    app.add_typer(commands, name="dev", no_args_is_help=True)


def up(
    brokers: Annotated[
        int, typer.Option(min=1, max=3, help="1, or 3 to survive the loss of one.")
    ] = 1,
) -> None:
    """Start a real Kafka on this machine, without Docker. Prints its address.

    It runs until `onceflow dev down`.
    """
    from onceflow.clock import SystemClock
    from onceflow.devkit.dev_broker import start_detached

    started = start_detached(brokers, SystemClock())
    typer.echo(f"export ONCEFLOW_BOOTSTRAP_SERVERS={started.bootstrap_servers}")


def down(
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep topics for the next `dev up`.")
    ] = False,
) -> None:
    """Stop the Kafka of `dev up` and remove its data."""
    from onceflow.clock import SystemClock
    from onceflow.devkit.dev_broker import remove_data, stop_detached

    stopped = stop_detached(SystemClock())
    if not keep_data:
        remove_data()
    typer.echo(f"stopped {stopped.bootstrap_servers}" if stopped else "nothing was running")


def status(output: OutputOption = ResultFormat.TEXT) -> None:
    """Show whether the Kafka of `dev up` runs, and its address."""
    from onceflow.devkit.dev_broker import running

    found = running()
    if output is ResultFormat.JSON:
        print_json({"running": found is not None, **(vars(found) if found else {})})
    elif found is None:
        typer.echo("not running")
    else:
        what = "1 broker" if found.brokers == 1 else f"{found.brokers} brokers"
        typer.echo(f"running: {what} at {found.bootstrap_servers}")

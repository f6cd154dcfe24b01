"""`onceflow control`: what the control API of a service needs."""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.errors import ConfigError

group = typer.Typer(no_args_is_help=True)


@group.callback()  # without it, a group of one command loses that command's name
def control() -> None:
    """Make tokens for the control API."""


@group.command()
def token(
    name: Annotated[str, typer.Argument(help="Name of its user, for the audit log.")],
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="`read`, or `write` to start and stop too.")
    ] = "read",
) -> None:
    """Make a bearer token.

    Prints the line for `control.tokens_file` to standard output and the token to standard error.
    The token is shown once and stored nowhere; the line holds only its hash.
    """
    from onceflow.control.tokens import Role, line_of, new_token

    if role not in {*Role}:
        raise ConfigError("unknown role", subject=role, expected="read or write")
    made = new_token()
    typer.echo(line_of(made, Role(role), name))
    typer.echo(f"token: {made}", err=True)

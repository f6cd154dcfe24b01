"""`onceflow control`: what the control API of a service needs."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Make tokens for the control API.")
    # With a callback, a group of one command keeps that command's name.
    group.callback()(_group)
    group.command("token")(token)
    app.add_typer(group, name="control")


def _group() -> None:
    """Make tokens for the control API."""


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
    from onceflow.errors import ConfigError

    if role not in {*Role}:
        raise ConfigError("unknown role", subject=role, expected="read or write")
    made = new_token()
    typer.echo(line_of(made, Role(role), name))
    typer.echo(f"token: {made}", err=True)

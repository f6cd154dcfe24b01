"""The entry point: finds the command, runs it, and turns an error into one message and a code.

Command modules import what they need inside their functions: `onceflow --help` answers at once and
needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path

import typer

from onceflow.cli.shared.terminal import guard_streams
from onceflow.errors import ConfigError, InvariantError, OnceflowError

COMMANDS = (
    "pipeline.init",
    "pipeline.validate",
    "pipeline.explain",
    "pipeline.run",
    "pipeline.serve",
    "operate.control",
    "operate.produce",
    "operate.consume",
    "operate.status",
    "operate.why_stuck",
    "operate.parameters",
    "operate.ledger",
    "operate.fork",
    "operate.state",
    "operate.dead_letter",
    "operate.skip",
    "machine.dev",
    "machine.demo",
    "machine.doctor",
    "machine.fetch",
    "operate.acls",
)
"""Modules below this package, in the order of the help: each has a command of the same name, or a
`group` of commands."""

TRACEBACK_VARIABLE = "ONCEFLOW_TRACEBACK"
"""Set to anything, unexpected errors show their whole traceback."""
FRAMES = 3
"""That an unexpected error names: the innermost, and the innermost of this package."""
_EXTRAS = {
    **dict.fromkeys(("fastapi", "jinja2", "prometheus_client", "uvicorn"), "serve"),
    "aiohttp": "gateway",
}
"""Packages that work without Spark takes -> the extra that brings them."""
_PACKAGE = Path(__file__).parents[1]


def build_app() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="onceflow",
        help="Exactly-once streaming from Kafka, through Spark SQL, to Kafka.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for path in COMMANDS:
        module, name = import_module(f"onceflow.cli.{path}"), path.partition(".")[2]
        if hasattr(module, "group"):
            app.add_typer(module.group, name=name.replace("_", "-"))
        else:
            app.command(name.replace("_", "-"))(getattr(module, name))
    app.command("version")(version)
    return app


def version() -> None:
    """Print the version."""
    typer.echo(installed_version("onceflow"))


def main() -> None:
    """Run the command line. Ends the process with one of the exit codes of `onceflow.errors`."""
    guard_streams()
    warnings.formatwarning = lambda message, *_: f"onceflow: warning: {message}\n"
    try:
        build_app()()
    except OnceflowError as error:
        _end(str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001  whatever arrives here is our bug, or lacks a package
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exc()
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("onceflow"):
            extra = _EXTRAS.get(error.name or "", "service")
            missing = ConfigError(
                "a package is missing",
                subject=error.name or "",
                then=f"Run `pip install 'onceflow[{extra}]'`",
            )
            _end(str(missing), missing.exit_code)
        _end(_unexpected(error), InvariantError.exit_code)


def _end(message: str, exit_code: int) -> None:
    typer.echo(f"onceflow: {message}", err=True)
    sys.exit(exit_code)


def _unexpected(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    # Deep in a library, the innermost frames alone do not tell what called it.
    ours = [n for n, f in enumerate(frames) if _PACKAGE in Path(f.filename).parents]
    told = [frames[n] for n in sorted({*ours[-FRAMES:], *range(len(frames))[-FRAMES:]})]
    places = " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in told)
    return (
        f"unexpected {type(error).__name__}: {error}\n"
        f"  at {places}\n"
        f"  This is a bug in Onceflow. {TRACEBACK_VARIABLE}=1 shows the whole traceback."
    )
